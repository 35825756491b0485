package stdio

// Termios are a terminal's settings, of which nothing is known here.
type Termios struct{}
