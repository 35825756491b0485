package sandbox

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
)

// findUser parses a name, a uid or uid:gid. Nil is the current user.
func findUser(s string) (*User, error) {
	if s == "" {
		return nil, nil
	}
	bad := func(err error) (*User, error) { return nil, fmt.Errorf("user: %q: %w", s, err) }
	u := &User{Groups: []int{}, home: "/"}
	uid, gid, both := strings.Cut(s, ":")
	if both {
		var err error
		if u.UID, err = id(uid); err != nil {
			return bad(err)
		}
		if u.GID, err = id(gid); err != nil {
			return bad(err)
		}
		u.Groups = append(u.Groups, u.GID)
		if account, err := user.LookupId(uid); err == nil {
			u.name, u.home = account.Username, account.HomeDir
		}
		return u.allowed(s)
	}
	account, err := user.Lookup(s)
	if n, nerr := id(s); nerr == nil {
		if account, err = user.LookupId(s); err != nil {
			u.UID, u.GID = n, n
			return u.allowed(s)
		}
	}
	if err != nil {
		return nil, &UserError{s}
	}
	u.name, u.home = account.Username, account.HomeDir
	u.UID, _ = strconv.Atoi(account.Uid)
	u.GID, _ = strconv.Atoi(account.Gid)
	groups, err := account.GroupIds()
	if err != nil {
		return bad(err)
	}
	for _, g := range groups {
		if n, err := strconv.Atoi(g); err == nil {
			u.Groups = append(u.Groups, n)
		}
	}
	return u.allowed(s)
}

// UserOf makes a user from numbers.
func UserOf(uid, gid int, groups []int) *User {
	u := &User{UID: uid, GID: gid, Groups: append([]int{}, groups...), home: "/"}
	if account, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		u.name, u.home = account.Username, account.HomeDir
	}
	return u
}

func id(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 1<<32-1 {
		return 0, fmt.Errorf("a number from 0 to %d is expected", uint32(1<<32-2))
	}
	return int(n), nil
}

// allowed returns u, or an error if this process cannot become u.
func (u *User) allowed(s string) (*User, error) {
	if os.Geteuid() == 0 {
		return u, nil
	}
	if u.UID == os.Geteuid() && u.GID == os.Getegid() {
		return nil, nil
	}
	return nil, fmt.Errorf("user: %q: only root can run a command as somebody else", s)
}

// environ replaces variables about the current user by those of u. Variables that differ from this process's
// environment were set for the command, and stay.
func (u *User) environ(env []string) []string {
	if u == nil {
		return env
	}
	var out []string
	for _, kv := range env {
		switch name, value, _ := strings.Cut(kv, "="); name {
		case "HOME", "USER", "LOGNAME", "XDG_RUNTIME_DIR":
			if own, set := os.LookupEnv(name); set && own == value {
				continue
			}
		}
		out = append(out, kv)
	}
	for _, v := range []struct{ name, value string }{{"HOME", u.home}, {"USER", u.name}, {"LOGNAME", u.name}} {
		if v.value != "" && lookup(out, v.name) == "" {
			out = append(out, v.name+"="+v.value)
		}
	}
	return out
}

// UserError is a user that does not exist on this host.
type UserError struct{ Name string }

func (e *UserError) Error() string { return fmt.Sprintf("this host knows no user %q", e.Name) }

// User is the user of the command.
type User struct {
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups"`

	name string // empty: the user has no account
	home string // "/" if the user has no account
}
