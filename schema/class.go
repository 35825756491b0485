package schema

// Class tells why an event happened. The rules are kernel/layer's.
type Class uint8

// Classes. The capability surface keeps ClassAgent alone.
const (
	ClassAgent         Class = iota // the program's own doing: the default
	ClassLoader                     // the dynamic loader starting a program
	ClassLocale                     // libc's locale and character set tables
	ClassRuntime                    // a language runtime looking for its own parts
	ClassIntrospection              // a program reading about itself and the host
	ClassLookup                     // a program looked for in a directory of PATH that does not have it
	ClassCheck                      // a check of the outcome contract: the runner's doing
	ClassRunner                     // what the runner did in the run's process before the command
	ClassSetup                      // a container engine's runtime preparing a container
	NumClasses         = iota
)

var classNames = [...]string{"agent", "loader", "locale", "runtime", "introspection", "lookup", "check", "runner",
	"setup"}

// String returns the class's name in JSON.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "agent"
}

// ParseClass is the inverse of String; ok is false for any other name.
func ParseClass(s string) (c Class, ok bool) {
	for i, n := range classNames {
		if n == s {
			return Class(i), true
		}
	}
	return 0, false
}
