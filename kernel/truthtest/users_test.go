//go:build linux && amd64

package truthtest

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// user is as whom, and how, a command runs.
type user struct {
	name    string
	options []string
	times   int // how often an attack is made
}

// record is recordWith, as the user.
func (u user) record(t *testing.T, dir string, command ...string) recording {
	t.Helper()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return recordWith(t, dir, u.options, nil, command...)
}

// attack runs a case of testdata/nasty.c as the user.
func (u user) attack(t *testing.T, dir, name string) recording {
	t.Helper()
	r := u.record(t, dir, helper, name, strconv.Itoa(u.times))
	r.events = slices.DeleteFunc(r.events, func(e schema.KernelEvent) bool { return e.Class != schema.ClassAgent })
	return r
}

var users = []user{{"root", nil, 1000}, {"user", []string{"--user", "nobody"}, 100},
	{"sandbox", []string{"--mode", "workspace-write"}, 100}}

// asEach runs a test of an attack as each user that can make it.
func asEach(t *testing.T, who []user, test func(t *testing.T, as user)) {
	t.Helper()
	need(t)
	for _, as := range who {
		t.Run(as.name, func(t *testing.T) { test(t, as) })
	}
}
