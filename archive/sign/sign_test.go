package sign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"golang.org/x/crypto/ssh"

	"github.com/assay-run/assay-run/archive"
)

// sample is a real bundle of an earlier build, copied so that envelopes can
// stand beside it.
func sample(t *testing.T) (path, identity string) {
	t.Helper()
	data, err := os.ReadFile("../testdata/vectors/sample.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "run.tar.gz")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := archive.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, r.Identity()
}

func newKey(t *testing.T) (Signer, *Trust) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pub")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	trust, err := Keys(file)
	if err != nil {
		t.Fatal(err)
	}
	return keySigner(private), trust
}

func TestAnAcceptedKeyCannotSayWhatTheBundleDoesNot(t *testing.T) {
	path, identity := sample(t)
	key, trust := newKey(t)
	for _, c := range []struct {
		name  string
		edit  func(*statement)
		field string // "" where the statement is accepted
	}{
		{"as it is", func(*statement) {}, ""},
		{"another verdict", func(s *statement) { v := "passed"; s.Predicate.Verdict = &v }, "verdict"},
		{"another outcome", func(s *statement) { s.Predicate.Outcome = "none" }, "outcome"},
		{"better health", func(s *statement) { s.Predicate.Health.KernelLayer = "whole" }, "health"},
	} {
		t.Run(c.name, func(t *testing.T) {
			statement, err := describe(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			c.edit(statement)
			put(t, path, key, statement)
			origin, err := Check(t.Context(), path, "", trust, time.Now())
			if c.field == "" {
				if err != nil || origin == nil {
					t.Fatalf("Check: %v, %v", origin, err)
				}
				return
			}
			if !errors.Is(err, errContradicts) || !strings.HasSuffix(err.Error(), "differ in "+c.field) ||
				origin != nil {
				t.Errorf("Check: %v, %v; want errContradicts in %s", origin, err, c.field)
			}
		})
	}
	if _, err := Bundle(t.Context(), path, "sha256:"+strings.Repeat("0", 64), key); err == nil ||
		!strings.Contains(err.Error(), "another bundle") {
		t.Errorf("signing under another identity: %v", err)
	}
	if _, err := Bundle(t.Context(), path, identity, key); err != nil {
		t.Error(err)
	}
}

func TestAnyoneMayWriteAKeyID(t *testing.T) {
	path, _ := sample(t)
	key, trust := newKey(t)
	stranger, _ := newKey(t)
	statement, err := describe(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	id, _ := key.KeyID()
	for _, c := range []struct {
		name string
		by   Signer
		id   string
		want error
	}{
		{"a stranger's signature under the accepted key's id", stranger, id, errUntrusted},
		{"the accepted key's signature under another id", key, "0123", nil},
		{"the accepted key's signature without an id", key, "", nil},
	} {
		put(t, path, named{c.by, c.id}, statement)
		if _, err := Check(t.Context(), path, "", trust, time.Now()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

type named struct {
	Signer
	id string
}

func (n named) KeyID() (string, error) { return n.id, nil }

func put(t *testing.T, path string, by Signer, statement *statement) {
	t.Helper()
	body, err := json.Marshal(statement)
	if err != nil {
		t.Fatal(err)
	}
	s, err := dsse.NewEnvelopeSigner(by)
	if err != nil {
		t.Fatal(err)
	}
	e, err := s.SignPayload(t.Context(), payloadType, body)
	if err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+Suffix, append(line, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTimesOfValidity(t *testing.T) {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	line := `a@b valid-after="20260301Z",valid-before="202603011200Z" ` +
		strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	s, use, err := allowedSigner(line)
	if err != nil || !use {
		t.Fatal(use, err)
	}
	for at, want := range map[string]bool{
		"2026-02-28T23:59:59Z": false, "2026-03-01T00:00:00Z": true,
		"2026-03-01T11:59:59Z": true, "2026-03-01T12:00:00Z": false,
	} {
		now, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.valid(now) == nil; got != want {
			t.Errorf("valid at %s: %v, want %v", at, got, want)
		}
	}
}

func FuzzAllowedSigners(f *testing.F) {
	f.Add([]byte("a@b ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPZ0AZn4R7iNMBqjyZyF4Ksvm5EpEi3V2qXKOHqq8Dl0 c\n"))
	f.Add([]byte("\"a b\",!c valid-after=\"20200101\",namespaces=\"a,b\" ssh-ed25519 AAAA\n# x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "allowed")
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		trust, err := AllowedSigners(file, "")
		if (trust == nil) == (err == nil) || trust != nil && len(trust.signers) == 0 {
			t.Errorf("%v, %v", trust, err)
		}
	})
}

func FuzzEnvelopes(f *testing.F) {
	f.Add([]byte(`{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[{"keyid":"","sig":"AA=="}]}`))
	f.Add([]byte(`{"payload":"` +
		base64.StdEncoding.EncodeToString([]byte(
			`{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":null}}]}`)) + `"}`))
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		f.Fatal(err)
	}
	s := signer{key: public}
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "x.intoto.jsonl")
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		all, err := readEnvelopes(file)
		if err == nil && len(all) == 0 && len(bytes.TrimSpace(data)) > 0 {
			t.Error("envelopes were lost")
		}
		for _, e := range all {
			if _, err := statementOf(&e); err == nil && s.signed(t.Context(), &e) {
				t.Error("a signature by a new key was accepted")
			}
		}
	})
}
