package policy

import (
	"strings"
	"unicode"
)

// fold is the full case folding of a text in normal form D (Unicode's CaseFolding.txt).
// The tables of golang.org/x/text/cases would say the same, and cost each run's start.
func fold(s string) string {
	var b strings.Builder
	for _, r := range s {
		if long := longFold(r); long != "" {
			b.WriteString(long)
		} else if r == 'ı' { // the dotless i, whose upper case is I
			b.WriteRune(r)
		} else {
			b.WriteRune(unicode.ToLower(unicode.ToUpper(r))) // of σ and ς, the same
		}
	}
	return b.String()
}

// longFold is what a rune folds to that has no decomposition and folds to several.
func longFold(r rune) string {
	switch r {
	case 'ß', 'ẞ':
		return "ss"
	case 'ŉ':
		return "ʼn"
	case 'և':
		return "եւ"
	case 'ẚ':
		return "aʾ"
	case 'ﬀ':
		return "ff"
	case 'ﬁ':
		return "fi"
	case 'ﬂ':
		return "fl"
	case 'ﬃ':
		return "ffi"
	case 'ﬄ':
		return "ffl"
	case 'ﬅ', 'ﬆ':
		return "st"
	case 'ﬓ':
		return "մն"
	case 'ﬔ':
		return "մե"
	case 'ﬕ':
		return "մի"
	case 'ﬖ':
		return "վն"
	case 'ﬗ':
		return "մխ"
	}
	return ""
}
