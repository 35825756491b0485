package stdio

// Termios are a terminal's settings, which are not known on this system.
type Termios struct{}
