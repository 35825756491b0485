package redact

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/v1"
)

var (
	// secretFlag matches flags whose argument is secret, with their argument
	// where it is in the same word.
	secretFlag = lazy(`^--?(?i:[a-z0-9_-]*(?:token|password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|credentials?|auth[_-]?key|bearer))(?:=(.+))?$`)
	// notSecret are flags that match and name a file, a kind or a place.
	notSecret = lazy(`(?i:file|path|dir|stdin|prompt|type|name|store|env|id|helper|cache|url|endpoint|ttl|length|policy)(?:=.*)?$`)
	// assignment is a variable set in front of or for a command.
	assignment = lazy(`(?:^|[\s;&|(])(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=("[^"]{4,}"|'[^']{4,}'|[^\s"';&|()$` + "`" +
		`]{4,})`)
	// flagInText is a secret flag inside of a command line in one word (sh -c).
	flagInText = lazy(`(?:^|\s)--?(?i:[a-z0-9_-]*(?:token|password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|secret[_-]?key))[= ]("[^"]{4,}"|'[^']{4,}'|[^\s"'$-][^\s"'$]{3,})`)
)

// attached are programs with a short flag for a password, and what it is: the
// rest of the word.
var attached = map[string]string{
	"mysql": "-p", "mysqldump": "-p", "mysqladmin": "-p", "mariadb": "-p", "mariadb-dump": "-p", "sshpass": "-p",
	"redis-cli": "-a",
	"7z":        "-p", "7za": "-p", "unzip": "-P", "zip": "-P",
}

// separate are programs with a short flag whose next word is a password, or ends with one after a colon.
var separate = map[string]map[string]bool{
	"sshpass": {"-p": true}, "redis-cli": {"-a": true}, "unzip": {"-P": true}, "zip": {"-P": true},
	"curl": {"-u": true, "--user": true, "-U": true, "--proxy-user": true}, "docker": {"-p": true},
	"podman": {"-p": true}, "ldapsearch": {"-w": true},
}

// shortestEverywhere is the least length of a secret that is replaced wherever it occurs in its argument. A shorter
// one is replaced only where the flag or header says that it is a secret.
const shortestEverywhere = 4

// secretParts are the secrets in one argument. isSecret says that a flag before
// it takes one.
func secretParts(program, arg string, isSecret bool, index int) []string {
	var parts []string
	add := func(s string) {
		if s = strings.Trim(s, `"'`); s != "" && !harmless(s) && !strings.HasPrefix(s, "$") &&
			!strings.Contains(s, "<redacted:") {
			parts = append(parts, s)
		}
	}
	switch {
	case isSecret:
		if program == "curl" {
			_, arg, _ = strings.Cut(arg, ":") // user:password
		}
		add(arg)
		return parts
	case index == 0:
		return nil
	}
	if m := secretFlag().FindStringSubmatch(arg); m != nil && m[1] != "" &&
		!notSecret().MatchString(strings.SplitN(arg, "=", 2)[0]) {
		add(m[1])
		return parts
	}
	if flag := attached[program]; flag != "" && len(arg) > len(flag) && strings.HasPrefix(arg, flag) &&
		!strings.HasPrefix(arg, "--") {
		add(arg[len(flag):])
		return parts
	}
	if strings.Contains(arg, "=") {
		for _, m := range assignment().FindAllStringSubmatch(arg, -1) {
			if secretName(m[1], DefaultEnv) {
				add(m[2])
			}
		}
	}
	if strings.ContainsAny(arg, " \t\n") && strings.Contains(arg, "-") {
		for _, m := range flagInText().FindAllStringSubmatch(arg, -1) {
			if !notSecret().MatchString(strings.Fields(m[0])[0]) {
				add(m[1])
			}
		}
	}
	return parts
}

// argumentLists are the keys of JSON arrays that hold a program's arguments.
var argumentLists = [][]byte{[]byte(`"argv"`), []byte(`"command"`), []byte(`"args"`)}

// isArgumentList reports whether JSON text ends with the key of such a list, and a colon.
func isArgumentList(b []byte) bool {
	b = bytes.TrimRight(b, " ")
	if len(b) == 0 || b[len(b)-1] != ':' {
		return false
	}
	b = bytes.TrimRight(b[:len(b)-1], " ")
	return slices.ContainsFunc(argumentLists, func(key []byte) bool { return bytes.HasSuffix(b, key) })
}

// stringList reads the array of strings that JSON text begins with, and how long it
// is; 0 if the array has anything else.
func stringList(b []byte) (list []string, n int) {
	space := func() {
		for n < len(b) && (b[n] == ' ' || b[n] == '\n' || b[n] == '\t' || b[n] == '\r') {
			n++
		}
	}
	for n = 1; ; n++ { // past the bracket, then past each comma
		space()
		if n >= len(b) || b[n] != '"' {
			return nil, 0
		}
		t := jsonText{b: b, at: n + 1, in: true}
		for t.in && t.at < len(b) {
			t.step()
		}
		var s string
		if t.in || json.Unmarshal(b[n:t.at], &s) != nil {
			return nil, 0
		}
		list, n = append(list, s), t.at
		if space(); n >= len(b) || b[n] != ',' && b[n] != ']' {
			return nil, 0
		}
		if b[n] == ']' {
			return list, n + 1
		}
	}
}
