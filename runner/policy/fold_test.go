package policy

import (
	"testing"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

func TestEachRuneFoldsAsUnicodeSays(t *testing.T) {
	oracle := cases.Fold()
	for r := rune(0); r <= unicode.MaxRune; r++ {
		text := norm.NFD.String(string(r))
		if unicode.Is(unicode.Cherokee, r) { // the oracle swaps the cases of these
			if upper := string(unicode.ToUpper(r)); fold(upper) != fold(text) {
				t.Errorf("%U folds to %+q and %+q to %+q, want the same", r, fold(text), upper, fold(upper))
			}
			continue
		}
		if got, want := norm.NFC.String(fold(text)), norm.NFC.String(oracle.String(text)); got != want {
			t.Errorf("%U folds to %+q, want %+q", r, got, want)
		}
	}
}
