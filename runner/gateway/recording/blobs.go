package recording

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// blobStore keeps the texts of a recording that are too large for a turn, and those
// that repeat, once.
type blobStore struct {
	rec   evidence.Recorder
	most  int64 // bytes of all
	least int   // bytes of one that repeats
	turns Turns

	mu     sync.Mutex
	seen   map[[sha256.Size]byte]bool // true: stored
	stored int64                      // bytes
	cut    uint64                     // values that are not whole
}

func newBlobStore(rec evidence.Recorder, o *Options) *blobStore {
	return &blobStore{rec: rec, most: o.BlobBytes, least: o.BlobMin, turns: o.Turns, seen: map[[sha256.Size]byte]bool{}}
}

// store reports whether text has a blob, making one if the turn cannot hold it or it is
// seen again.
func (b *blobStore) store(sum [sha256.Size]byte, text []byte, large bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	stored, again := b.seen[sum]
	switch {
	case stored:
		return true
	case !again && !large:
		if len(b.seen) < maxSeen {
			b.seen[sum] = false
		}
		return false
	case b.stored+int64(len(text)) > b.most:
		return false
	}
	if err := b.rec.Put(schema.BlobsDir+hex.EncodeToString(sum[:]), text); err != nil {
		return false // the text stays in the turn, up to its cap
	}
	b.seen[sum] = true
	b.stored += int64(len(text))
	return true
}

// Blobs keeps texts that belong to no turn as members of their own, each of them once. All methods are safe for
// concurrent use.
type Blobs struct {
	store *blobStore
	room  atomic.Int64 // so many more
}

// maxBlobs bounds how many texts there are: a bundle has a bounded number of members.
const maxBlobs = 10_000

// NewBlobs makes a store for at most `most` bytes.
func NewBlobs(rec evidence.Recorder, most int64) *Blobs {
	b := &Blobs{store: newBlobStore(rec, &Options{BlobBytes: most})}
	b.room.Store(maxBlobs)
	return b
}

// Keep returns the name of the member with a text, which has no secrets, and whether there is one.
func (b *Blobs) Keep(text []byte) (name string, kept bool) {
	// The Recorder looks for secrets as in JSON once more: what it changed would have another name.
	for range 3 {
		clean := b.RedactJSON(b.Redact(text))
		if bytes.Equal(clean, text) {
			break
		}
		text = clean
	}
	sum := sha256.Sum256(text)
	name = schema.BlobsDir + hex.EncodeToString(sum[:])
	b.store.mu.Lock()
	known := b.store.seen[sum]
	b.store.mu.Unlock()
	if !known && b.room.Add(-1) < 0 {
		return "", false
	}
	return name, b.store.store(sum, text, true)
}

// Redact and RedactJSON take the secrets out of a text, and out of a JSON value.
func (b *Blobs) Redact(text []byte) []byte {
	if r, ok := b.store.rec.(redactor); ok {
		return r.RedactText(schema.ModelPath, text)
	}
	return text
}

func (b *Blobs) RedactJSON(v []byte) []byte {
	if r, ok := b.store.rec.(redactor); ok {
		return r.RedactJSON(schema.ModelPath, v)
	}
	return v
}

// redactor is a Recorder that takes secrets out.
type redactor interface {
	RedactText(path string, b []byte) []byte
	RedactJSON(path string, b []byte) []byte
}

// count counts what is not whole in a turn.
func (b *blobStore) count(t *schema.TurnBody) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut += uint64(len(t.Cut))
	if IsLeftOut(t.Output) {
		b.cut++
	}
}

// IsLeftOut reports whether a result or an error was too large for a message, as "assay-run mcp" says so.
func IsLeftOut(output []byte) bool {
	return bytes.HasPrefix(output, []byte(schema.ResultLeftOut))
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
	var prompt int
	if t.Prompt != nil {
		prompt = len(*t.Prompt)
	}
	for range 2 {
		switch {
		case prompt+len(t.Parameters)+len(t.Output) <= b.turns.TurnBytes:
		case len(t.Output) > len(t.Parameters):
			t.Output = b.whole(t, "/output", output)
		default:
			t.Parameters = b.whole(t, "/parameters", parameters)
		}
	}
	b.count(t)
}

// redact takes the secrets out before anything is cut, so that no half of one
// is kept, nor the digest of a text with one.
func (b *blobStore) redact(t *schema.TurnBody) {
	r, ok := b.rec.(redactor)
	if !ok {
		return
	}
	if t.Prompt != nil {
		p := string(r.RedactText(schema.TurnsPath, []byte(*t.Prompt)))
		t.Prompt = &p
	}
	t.Parameters, t.Output = r.RedactJSON(schema.TurnsPath, t.Parameters), r.RedactJSON(schema.TurnsPath, t.Output)
}

// whole stores a value apart, or cuts it as a whole, and takes back what was noted of its
// parts.
func (b *blobStore) whole(t *schema.TurnBody, path string, raw []byte) []byte {
	in := func(part string) bool { return part == path || strings.HasPrefix(part, path+"/") }
	t.Cut = slices.DeleteFunc(t.Cut, func(c schema.Cut) bool { return in(c.Path) })
	t.Blobs = slices.DeleteFunc(t.Blobs, func(b schema.BlobRef) bool { return in(b.Path) })
	sum := sha256.Sum256(raw)
	if name := schema.BlobsDir + hex.EncodeToString(sum[:]); b.store(sum, raw, true) {
		t.Blobs = append(t.Blobs, schema.BlobRef{Path: path, Bytes: len(raw), SHA256: digest(sum), JSON: true})
		return []byte(`"` + name + `"`)
	}
	t.Cut = append(t.Cut, schema.Cut{Path: path, Bytes: len(raw), SHA256: digest(sum)})
	return []byte("null")
}

// text is a text as a turn keeps it.
func (b *blobStore) text(t *schema.TurnBody, path, text string) string {
	if len(text) < b.least && len(text) <= b.turns.FieldBytes {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	if large := len(text) > b.turns.FieldBytes; b.store(sum, []byte(text), large) {
		t.Blobs = append(t.Blobs, schema.BlobRef{Path: path, Bytes: len(text), SHA256: digest(sum)})
		return schema.BlobsDir + hex.EncodeToString(sum[:])
	}
	if len(text) <= b.turns.FieldBytes {
		return text
	}
	// An error stands at the end, so that is kept as well.
	head, tail := b.turns.FieldBytes-b.turns.FieldBytes/2, len(text)-b.turns.FieldBytes/2
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	t.Cut = append(t.Cut, schema.Cut{Path: path, Bytes: len(text), Kept: head, Tail: len(text) - tail,
		SHA256: digest(sum)})
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", text[:head], tail-head, text[tail:])
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
			return b.whole(t, path, raw)
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
			text, err := jsontext.AppendUnquote(nil, v)
			if err != nil {
				return []byte("null")
			}
			at := path + string(d.StackPointer())
			if len(at) > maxNotePath {
				at = strings.ToValidUTF8(at[:maxNotePath], "") + "..."
			}
			err = e.WriteToken(jsontext.String(b.text(t, at, string(text))))
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
