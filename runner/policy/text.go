package policy

import (
	"math/big"
	"path"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// folded returns a text in the form for comparisons: without invisible characters, in Unicode normal form C (UAX #15)
// after full case folding, so that "STRASSE" equals "straße", and a decomposed "ö" a composed one.
func folded(s string) string {
	if isPrintableASCII(s) {
		return strings.ToLower(s)
	}
	return norm.NFC.String(cases.Fold().String(norm.NFD.String(visible(s))))
}

// Alike is equal for names that a server may confuse: some look up a tool without regard to case, surrounding space
// and invisible characters.
func Alike(name string) string {
	if !isPrintableASCII(name) {
		name = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) && !unicode.IsSpace(r) {
				return -1
			}
			return r
		}, name)
	}
	return strings.TrimSpace(folded(name))
}

// composed returns a text without invisible characters in normal form C. Case is kept.
func composed(s string) string {
	if isPrintableASCII(s) {
		return s
	}
	return norm.NFC.String(visible(s))
}

// isPrintableASCII reports whether a text is printable ASCII.
func isPrintableASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x7f || s[i] < ' ' {
			return false
		}
	}
	return true
}

// visible removes invisible characters, which would make comparisons fail: format characters, characters that Unicode
// ignores by default, and the Braille pattern without dots.
func visible(s string) string {
	const noDots = '\u2800'
	return strings.Map(func(r rune) rune {
		if r == noDots || unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point,
			unicode.Variation_Selector) {
			return -1
		}
		return r
	}, s)
}

// maxNumber limits the text of a number that is compared as a number, and its exponent: an exact decoder would need
// gigabytes for 1e999999999.
const maxNumber = 400

// number reads a JSON number exactly.
func number(s string) (*big.Rat, bool) {
	if s == "" || len(s) > maxNumber || strings.Trim(s, "0123456789+-.eE") != "" {
		return nil, false
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		if digits := strings.TrimLeft(s[i+1:], "+-0"); len(digits) > 3 || len(digits) == 3 && digits > "400" {
			return nil, false
		}
	}
	return new(big.Rat).SetString(s)
}

// sameNumber reports whether two texts are the same number.
func sameNumber(a, b string) bool {
	x, ok := number(a)
	if !ok {
		return false
	}
	y, ok := number(b)
	return ok && x.Cmp(y) == 0
}

// climbs reports whether a path leaves the directory that it is relative to, which is not known.
func climbs(p string) bool {
	p = path.Clean(p)
	return p == ".." || strings.HasPrefix(p, "../")
}
