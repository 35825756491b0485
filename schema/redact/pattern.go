package redact

import (
	"regexp"
	"sync"
)

// pattern is a regular expression that is compiled when it is first used. A run
// needs few of them, and all of them took a quarter of the program's start.
type pattern func() *regexp.Regexp

func lazy(text string) pattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
