package sign

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"golang.org/x/crypto/ssh"
)

// ErrUnsigned is wrapped by the error of [Check] if no envelope is about the bundle.
var ErrUnsigned = errors.New("not signed")

var (
	errUntrusted   = errors.New("not signed by an accepted key")
	errContradicts = errors.New("the signed statement contradicts the bundle")
)

// Origin says who signed a bundle.
type Origin struct {
	// KeyID is the key's OpenSSH fingerprint, "SHA256:...".
	KeyID string `json:"key_id"`
	// Principals are the patterns of the allowed-signers line; empty for a key of [Keys].
	Principals []string `json:"principals,omitempty"`
	// Identity is the identity of the signed bundle.
	Identity string `json:"-"`
}

// Check looks in a file of envelopes (empty: the one beside the bundle) for a signature of the bundle at path by a key
// that trust accepts at the time now, and compares the signed statement with the bundle. It does not verify the bundle
// itself; see [archive.Verify].
func Check(ctx context.Context, path, envelopes string, trust *Trust, now time.Time) (*Origin, error) {
	if envelopes == "" {
		envelopes = path + Suffix
	}
	actual, err := describe(ctx, path)
	if err != nil {
		return nil, err
	}
	identity := "sha256:" + actual.Subject[0].Digest["sha256"]
	all, err := readEnvelopes(envelopes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: there is no %s", ErrUnsigned, envelopes)
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsigned, err)
	}
	signed := false
	var expired error
	for _, e := range all {
		statement, err := statementOf(&e)
		if err != nil || !statement.about(identity) {
			continue
		}
		signed = true
		for _, s := range trust.signers {
			if !s.signed(ctx, &e) {
				continue
			}
			if err := s.valid(now); err != nil {
				expired = err
				continue
			}
			if field := contradiction(&e, actual); field != "" {
				return nil, fmt.Errorf("%w: they differ in %s", errContradicts, field)
			}
			return &Origin{KeyID: s.id(), Principals: s.principals, Identity: identity}, nil
		}
	}
	switch {
	case !signed:
		return nil, fmt.Errorf("%w: no signature in %s is for this bundle, %s", ErrUnsigned, envelopes, identity)
	case expired != nil:
		return nil, fmt.Errorf("%w of %s: %w", errUntrusted, trust.source, expired)
	}
	return nil, fmt.Errorf("%w of %s", errUntrusted, trust.source)
}

// contradiction returns the first field of the signed predicate that differs from the bundle; empty if there is none.
// Fields that this version does not know are ignored.
func contradiction(e *dsse.Envelope, actual *statement) string {
	var signed, ours struct {
		Predicate map[string]any `json:"predicate"`
	}
	body, err := e.DecodeB64Payload()
	if err == nil {
		err = json.Unmarshal(body, &signed)
	}
	if err == nil {
		body, err = json.Marshal(actual)
	}
	if err == nil {
		err = json.Unmarshal(body, &ours)
	}
	if err != nil {
		return "predicate"
	}
	for _, field := range slices.Sorted(maps.Keys(signed.Predicate)) {
		if is, known := ours.Predicate[field]; known && !reflect.DeepEqual(signed.Predicate[field], is) {
			return field
		}
	}
	return ""
}

// signed reports whether one of the envelope's signatures is by this key. The key ids in it are ignored, since anyone
// can write them.
func (s signer) signed(ctx context.Context, e *dsse.Envelope) bool {
	v, err := dsse.NewEnvelopeVerifier(verifier{s.key})
	if err != nil {
		return false
	}
	unnamed := *e
	unnamed.Signatures = slices.Clone(e.Signatures)
	for i := range unnamed.Signatures {
		unnamed.Signatures[i].KeyID = ""
	}
	_, err = v.Verify(ctx, &unnamed)
	return err == nil
}

func (s signer) valid(now time.Time) error {
	switch {
	case !s.after.IsZero() && now.Before(s.after):
		return fmt.Errorf("key %s is valid from %s", s.id(), s.after.Format(time.RFC3339))
	case !s.before.IsZero() && !now.Before(s.before):
		return fmt.Errorf("key %s was valid until %s", s.id(), s.before.Format(time.RFC3339))
	}
	return nil
}

func (s signer) id() string {
	key, err := ssh.NewPublicKey(s.key)
	if err != nil {
		return ""
	}
	return ssh.FingerprintSHA256(key)
}

// verifier is a [dsse.Verifier] of one key.
type verifier struct{ key ed25519.PublicKey }

func (v verifier) Verify(_ context.Context, data, signature []byte) error {
	if !ed25519.Verify(v.key, data, signature) {
		return errors.New("the signature does not verify")
	}
	return nil
}

func (v verifier) KeyID() (string, error)   { return "", nil }
func (v verifier) Public() crypto.PublicKey { return v.key }

// signer is an accepted key.
type signer struct {
	key           ed25519.PublicKey
	principals    []string  // of an allowed-signers line
	after, before time.Time // when it is valid; zero means no limit
}
