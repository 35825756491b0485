package sign

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// namespace must be in the namespaces option of an allowed-signers line, if it has one.
const namespace = "assay-run"

// Trust holds the keys whose signatures are accepted.
type Trust struct {
	source  string // the file, for messages
	signers []signer
}

// Keys returns the trust in the ed25519 public keys of a file, in PEM or OpenSSH format.
func Keys(file string) (*Trust, error) {
	data, _, err := readKeyFile(file)
	if err != nil {
		return nil, err
	}
	keys, err := parsePublicKeys(data)
	if err != nil {
		if _, private := ssh.ParseRawPrivateKey(data); private == nil {
			err = errors.New("it holds a private key: name the file of the public key")
		}
		return nil, fmt.Errorf("%w: %s: %w", errKey, file, err)
	}
	t := &Trust{source: file}
	for _, key := range keys {
		t.signers = append(t.signers, signer{key: key})
	}
	return t, nil
}

// AllowedSigners returns the trust in the ed25519 keys of an OpenSSH allowed-signers file (ssh-keygen(1), ALLOWED
// SIGNERS), with their principals and times of validity. It ignores lines with other types of keys, certificate
// authorities, and other namespaces. If principal is not empty, only the lines that name it count.
func AllowedSigners(file, principal string) (*Trust, error) {
	data, _, err := readKeyFile(file)
	if err != nil {
		return nil, err
	}
	t := &Trust{source: file}
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s, use, err := allowedSigner(line)
		if err != nil {
			return nil, fmt.Errorf("%w: %s, line %d: %w", errKey, file, i+1, err)
		}
		if use && (principal == "" || matchList(s.principals, principal)) {
			t.signers = append(t.signers, s)
		}
	}
	switch {
	case len(t.signers) > 0:
		return t, nil
	case principal != "":
		return nil, fmt.Errorf("%w: %s has no ed25519 key for principal %q", errKey, file, principal)
	}
	return nil, fmt.Errorf("%w: %s has no ed25519 key", errKey, file)
}

// allowedSigner reads one line: principals, options, key. use reports whether the key may sign bundles.
func allowedSigner(line string) (s signer, use bool, err error) {
	principals, rest, err := firstField(line)
	if err != nil {
		return signer{}, false, err
	}
	key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(rest))
	if err != nil {
		return signer{}, false, errors.New("no public key after the principals")
	}
	s, use = signer{principals: strings.Split(principals, ",")}, true
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		value = strings.Trim(value, `"`)
		switch strings.ToLower(name) {
		case "cert-authority":
			use = false
		case "namespaces":
			use = use && matchList(strings.Split(value, ","), namespace)
		case "valid-after":
			s.after, err = sshTime(value)
		case "valid-before":
			s.before, err = sshTime(value)
		default:
			err = fmt.Errorf("unknown option %q", name)
		}
		if err != nil {
			return signer{}, false, err
		}
	}
	public, err := ed25519Key(key)
	if err != nil {
		return signer{}, false, nil // a key for something else
	}
	s.key = public
	return s, use, nil
}

// firstField splits off the first word, which may be quoted.
func firstField(line string) (field, rest string, err error) {
	if quoted, ok := strings.CutPrefix(line, `"`); ok {
		field, rest, ok = strings.Cut(quoted, `"`)
		if !ok {
			return "", "", errors.New("a quote is not closed")
		}
		return field, strings.TrimSpace(rest), nil
	}
	i := strings.IndexAny(line, " \t")
	if i < 0 {
		return "", "", errors.New("no public key after the principals")
	}
	return line[:i], strings.TrimSpace(line[i:]), nil
}

// matchList reports whether a word matches OpenSSH's pattern list (ssh_config(5)): "*" and "?" are wildcards,
// "!" negates, and a negated match wins.
func matchList(patterns []string, word string) bool {
	matched := false
	for _, p := range patterns {
		p, not := strings.CutPrefix(p, "!")
		escaped := strings.NewReplacer(`\`, `\\`, `[`, `\[`, `/`, "\x00").Replace(p)
		if ok, _ := path.Match(escaped, strings.ReplaceAll(word, "/", "\x00")); ok {
			if not {
				return false
			}
			matched = true
		}
	}
	return matched
}

// sshTime parses YYYYMMDD or YYYYMMDDHHMM[SS] in local time, or in UTC with a Z at the end.
func sshTime(s string) (time.Time, error) {
	digits, zone := s, time.Local
	if utc, ok := strings.CutSuffix(s, "Z"); ok {
		digits, zone = utc, time.UTC
	}
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if len(layout) == len(digits) {
			return time.ParseInLocation(layout, digits, zone)
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time of the form YYYYMMDD or YYYYMMDDHHMM[SS][Z]", s)
}
