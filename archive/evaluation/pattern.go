package evaluation

import (
	"regexp"
	"sync"
)

// pattern compiles a regular expression when it is first needed.
func pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
