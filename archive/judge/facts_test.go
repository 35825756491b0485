package judge

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestArgumentsWithoutChance(t *testing.T) {
	c := newChanceNames([]string{"/tmp/x<random>", "/tmp/kept"})
	in := []string{"gcc", "/tmp/xAb12Cd", "-o/tmp/xAb12Cd", "/w=>w;/tmp/go-build4251417300/b001=>", "--to=/tmp/kept/1234567890",
		".git/objects/pack/.tmp-25952-pack", "https://example.com/tmp/xAb12Cd", "https://example.com/a", "a/b", "/", "text"}
	want := []string{"gcc", "/tmp/x<random>", "-o/tmp/x<random>", "/w=>w;/tmp/go-build<random>/b001=>", "--to=/tmp/kept/1234567890",
		".git/objects/pack/.tmp-<random>-pack", "https://example.com/tmp/xAb12Cd", "https://example.com/a", "a/b", "/", "text"}
	if diff := cmp.Diff(want, c.arguments(in)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
