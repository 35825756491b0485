package recording

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/schema"
)

// Bounds of the notes about what was cut: how many in a turn, and the bytes of
// a path.
const (
	maxNotes    = 256
	maxNotePath = 256
)

// maxSeen bounds the texts that are remembered to see them again.
const maxSeen = 4096

// blobStore keeps large repeated texts of a recording once.
type blobStore struct {
	rec   evidence.Recorder
	most  int // texts
	least int // bytes of one
	turns Turns

	mu     sync.Mutex
	seen   map[[sha256.Size]byte]bool // true: stored
	stored int
}

func newBlobStore(rec evidence.Recorder, o *Options) *blobStore {
	return &blobStore{rec: rec, most: o.Blobs, least: o.BlobMin, turns: o.Turns, seen: map[[sha256.Size]byte]bool{}}
}

// store tells whether text has a blob, making one when it is seen again.
func (b *blobStore) store(sum [sha256.Size]byte, text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	stored, again := b.seen[sum]
	switch {
	case stored:
		return true
	case !again:
		if len(b.seen) < maxSeen {
			b.seen[sum] = false
		}
		return false
	case b.stored >= b.most:
		return false
	}
	if err := b.rec.Put(schema.BlobsDir+hex.EncodeToString(sum[:]), []byte(text)); err != nil {
		return false // the text stays in the turn, up to its cap
	}
	b.seen[sum] = true
	b.stored++
	return true
}

// forget frees what only a live run needs.
func (b *blobStore) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.seen)
}

// trim brings a turn's values under their caps and notes what it did.
func (b *blobStore) trim(t *schema.TurnBody) {
	b.redact(t)
	if t.Prompt != nil {
		p := b.text(t, "/prompt", *t.Prompt)
		t.Prompt = &p
	}
	parameters, output := t.Parameters, t.Output
	t.Parameters = b.value(t, "/parameters", parameters)
	t.Output = b.value(t, "/output", output)
	// What is still too much goes whole, the largest value first.
	for {
		var prompt int
		if t.Prompt != nil {
			prompt = len(*t.Prompt)
		}
		values := len(t.Parameters) + len(t.Output)
		if prompt+values <= b.turns.TurnBytes || values <= 2*len("null") {
			return
		}
		if len(t.Output) > len(t.Parameters) {
			t.Output = whole(t, "/output", output)
		} else {
			t.Parameters = whole(t, "/parameters", parameters)
		}
	}
}

// redact takes the secrets out before anything is cut, so that no half of one
// is kept, nor the digest of a text with one.
func (b *blobStore) redact(t *schema.TurnBody) {
	r, ok := b.rec.(interface {
		RedactText(path string, b []byte) []byte
		RedactJSON(path string, b []byte) []byte
	})
	if !ok {
		return
	}
	if t.Prompt != nil {
		p := string(r.RedactText(schema.TurnsPath, []byte(*t.Prompt)))
		t.Prompt = &p
	}
	t.Parameters, t.Output = r.RedactJSON(schema.TurnsPath, t.Parameters), r.RedactJSON(schema.TurnsPath, t.Output)
}

// whole cuts a value as a whole, and takes back what was noted of its parts.
func whole(t *schema.TurnBody, path string, raw []byte) []byte {
	in := func(part string) bool { return part == path || strings.HasPrefix(part, path+"/") }
	t.Cut = slices.DeleteFunc(t.Cut, func(c schema.Cut) bool { return in(c.Path) })
	t.Blobs = slices.DeleteFunc(t.Blobs, func(b schema.BlobRef) bool { return in(b.Path) })
	sum := sha256.Sum256(raw)
	t.Cut = append(t.Cut, schema.Cut{Path: path, Bytes: len(raw), SHA256: digest(sum)})
	return []byte("null")
}

// text is a text as a turn keeps it.
func (b *blobStore) text(t *schema.TurnBody, path, text string) string {
	if len(text) < b.least && len(text) <= b.turns.FieldBytes {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	if len(text) >= b.least && b.store(sum, text) {
		t.Blobs = append(t.Blobs, schema.BlobRef{Path: path, Bytes: len(text), SHA256: digest(sum)})
		return schema.BlobsDir + hex.EncodeToString(sum[:])
	}
	if len(text) <= b.turns.FieldBytes {
		return text
	}
	kept := b.turns.FieldBytes
	for kept > 0 && !utf8.RuneStart(text[kept]) {
		kept--
	}
	t.Cut = append(t.Cut, schema.Cut{Path: path, Bytes: len(text), Kept: kept, SHA256: digest(sum)})
	return text[:kept]
}

// value is a JSON value as a turn keeps it: the texts in it are cut or stored
// apart, one by one. raw is valid.
func (b *blobStore) value(t *schema.TurnBody, path string, raw []byte) []byte {
	if len(raw) <= min(b.least, b.turns.FieldBytes) {
		return raw
	}
	var out bytes.Buffer
	out.Grow(min(len(raw), b.turns.TurnBytes))
	d, e := jsontext.NewDecoder(bytes.NewBuffer(raw)), jsontext.NewEncoder(&out)
	for {
		kind := d.PeekKind()
		if kind == 0 {
			break
		}
		if len(t.Cut)+len(t.Blobs) > maxNotes {
			return whole(t, path, raw)
		}
		switch kind {
		case '{', '}', '[', ']':
			tok, err := d.ReadToken()
			if err != nil || e.WriteToken(tok) != nil {
				return []byte("null")
			}
			continue
		}
		isName := false
		if k, n := d.StackIndex(d.StackDepth()); k == '{' && n%2 == 0 {
			isName = true
		}
		v, err := d.ReadValue()
		if err != nil {
			return []byte("null")
		}
		if kind == '"' && !isName && len(v) > min(b.least, b.turns.FieldBytes) {
			plain, err := jsontext.AppendUnquote(nil, v)
			if err != nil {
				return []byte("null")
			}
			at := path + string(d.StackPointer())
			if len(at) > maxNotePath {
				at = strings.ToValidUTF8(at[:maxNotePath], "") + "..."
			}
			err = e.WriteToken(jsontext.String(b.text(t, at, string(plain))))
			if err != nil {
				return []byte("null")
			}
			continue
		}
		if err := e.WriteValue(v); err != nil {
			return []byte("null")
		}
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func digest(sum [sha256.Size]byte) string { return "sha256:" + hex.EncodeToString(sum[:]) }
