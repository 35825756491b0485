package sign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/assay-run/assay-run/archive"
)

// Suffix is added to a bundle's name for the file of its envelopes.
const Suffix = ".intoto.jsonl"

// maxEnvelopes limits a file of envelopes, in bytes.
const maxEnvelopes = 4 << 20

// Bundle signs the bundle at path, which must have the given identity. It returns the name of the file with the
// envelope. Envelopes in that file by other keys about the same bundle are kept, all others removed. On an error the
// file is not changed.
func Bundle(ctx context.Context, path, identity string, by Signer) (string, error) {
	statement, err := describe(ctx, path)
	if err != nil {
		return "", err
	}
	if !statement.about(identity) {
		return "", fmt.Errorf("%s is another bundle than the one to sign, %s", path, identity)
	}
	body, err := json.Marshal(statement)
	if err != nil {
		return "", err
	}
	signer, err := dsse.NewEnvelopeSigner(by)
	if err != nil {
		return "", err
	}
	made, err := signer.SignPayload(ctx, payloadType, body)
	if err != nil {
		return "", fmt.Errorf("sign %s: %w", path, err)
	}
	file := path + Suffix
	kept, err := readEnvelopes(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w; remove that file to sign again", err)
	}
	var lines bytes.Buffer
	kept = slices.DeleteFunc(kept, func(e dsse.Envelope) bool { return !about(&e, identity) || sameKey(&e, made) })
	for _, e := range append(kept, *made) {
		line, err := json.Marshal(e)
		if err != nil {
			return "", err
		}
		lines.Write(append(line, '\n'))
	}
	if err := archive.Replace(file, func(w io.Writer) error { _, err := lines.WriteTo(w); return err }); err != nil {
		return "", fmt.Errorf("write %s: %w", file, err)
	}
	return file, nil
}

func about(e *dsse.Envelope, identity string) bool {
	s, err := statementOf(e)
	return err == nil && s.about(identity)
}

// sameKey reports whether two envelopes name the same key or have equal signatures. The envelope of a signing command
// names no key.
func sameKey(a, b *dsse.Envelope) bool {
	if len(a.Signatures) == 0 || len(b.Signatures) == 0 {
		return false
	}
	x, y := a.Signatures[0], b.Signatures[0]
	return x.Sig == y.Sig || x.KeyID != "" && x.KeyID == y.KeyID
}

// statementOf reads an envelope's payload without verifying the signature.
func statementOf(e *dsse.Envelope) (*statement, error) {
	if e.PayloadType != payloadType {
		return nil, fmt.Errorf("payload type %q", e.PayloadType)
	}
	body, err := e.DecodeB64Payload()
	if err != nil {
		return nil, err
	}
	var s statement
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, err
	}
	if s.Type != statementType || s.PredicateType != predicateType {
		return nil, fmt.Errorf("a statement %q with predicate %q", s.Type, s.PredicateType)
	}
	return &s, nil
}

// readEnvelopes reads a file with an envelope on each line.
func readEnvelopes(file string) ([]dsse.Envelope, error) {
	data, _, err := readAtMost(file, maxEnvelopes)
	if err != nil {
		return nil, err
	}
	var all []dsse.Envelope
	for i, line := range bytes.Split(data, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var e dsse.Envelope
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s, line %d: not a DSSE envelope: %w", file, i+1, err)
		}
		all = append(all, e)
	}
	return all, nil
}
