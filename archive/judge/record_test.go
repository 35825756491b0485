package judge

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestArgumentsWithoutChance(t *testing.T) {
	c := newRandomNames([]string{"/tmp/x<random>", "/tmp/kept", "/w/m.cgu.<random>.rcgu.o"})
	for arg, want := range map[string]string{
		"/tmp/xAb12Cd":                         "/tmp/x<random>",
		"-o/tmp/xAb12Cd":                       "-o/tmp/x<random>",
		"/w=>w;/tmp/go-build4251417300/b001=>": "/w=>w;/tmp/go-build<random>/b001=>",
		"--to=/tmp/kept/1234567890":            "--to=/tmp/kept/1234567890",
		".git/objects/pack/.tmp-25952-pack":    ".git/objects/pack/.tmp-<random>-pack",
		"https://example.com/objects/a.git":    "https://example.com/objects/a.git",
		"m.cgu.0j72uz6.rcgu.o":                 "m.cgu.<random>.rcgu.o",
		"n.cgu.0j72uz6.rcgu.o":                 "n.cgu.0j72uz6.rcgu.o",
		"a/b":                                  "a/b",
		"/":                                    "/",
		"text":                                 "text",
		"":                                     "",
	} {
		if diff := cmp.Diff([]string{want}, c.arguments([]string{arg}, "/w")); diff != "" {
			t.Errorf("%q (-want +got):\n%s", arg, diff)
		}
	}
}
