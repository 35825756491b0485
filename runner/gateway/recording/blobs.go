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
	"github.com/assay-run/assay-run/schema/specfile"
)

// Limits of the notes about cuts: how many per turn, and the bytes of a path.
const (
	maxNotes    = 256
	maxNotePath = 256
)

// maxSeen limits the texts that are remembered to recognize repeats.
const maxSeen = 4096

// blobStore stores the texts of a recording that are too large for a turn, or repeat, once each.
type blobStore struct {
	rec   evidence.Recorder
	most  int64 // bytes of all blobs
	least int   // bytes of a repeated text
	turns specfile.Turns

	mu     sync.Mutex
	seen   map[[sha256.Size]byte]bool // true: stored
	stored int64                      // bytes
	cut    uint64                     // values that are incomplete
}

func newBlobStore(rec evidence.Recorder, o *Options) *blobStore {
	return &blobStore{rec: rec, most: o.BlobBytes, least: o.BlobMin, turns: o.Turns, seen: map[[sha256.Size]byte]bool{}}
}

// store reports whether text has a blob. It makes one if the turn cannot hold the text or the text repeats.
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
		return false // the text stays in the turn, up to its limit
	}
	b.seen[sum] = true
	b.stored += int64(len(text))
	return true
}

// Blobs stores texts that belong to no turn as members of the bundle, each once. All methods are safe for concurrent
// use.
type Blobs struct {
	store *blobStore
	room  atomic.Int64 // how many more texts
}

// maxBlobs limits the number of texts, since a bundle has a limited number of members.
const maxBlobs = 10_000

// NewBlobs makes a store for at most `most` bytes.
func NewBlobs(rec evidence.Recorder, most int64) *Blobs {
	b := &Blobs{store: newBlobStore(rec, &Options{BlobBytes: most})}
	b.room.Store(maxBlobs)
	return b
}

// Keep returns the name of the member with a text that has no secrets, and whether there is one.
func (b *Blobs) Keep(text []byte) (name string, kept bool) {
	// The Recorder redacts the text once more, as JSON. A change would change the name.
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

// Redact and RedactJSON remove the secrets from a text and from a JSON value.
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

// redactor is a Recorder that removes secrets.
type redactor interface {
	RedactText(path string, b []byte) []byte
	RedactJSON(path string, b []byte) []byte
}

// count counts the incomplete values of a turn.
func (b *blobStore) count(t *schema.TurnBody) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut += uint64(len(t.Cut))
	if IsLeftOut(t.Output) {
		b.cut++
	}
}

// IsLeftOut reports whether a result or an error was too large for a message; "assay-run mcp" marks such results.
func IsLeftOut(output []byte) bool {
	return bytes.HasPrefix(output, []byte(schema.ResultLeftOut))
}

// forget frees what only an open run needs.
func (b *blobStore) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.seen)
}

// trim brings a turn's values below their limits and records what it did.
func (b *blobStore) trim(t *schema.TurnBody) {
	b.redact(t)
	if t.Prompt != nil {
		p := b.text(t, "/prompt", *t.Prompt)
		t.Prompt = &p
	}
	parameters, output := t.Parameters, t.Output
	t.Parameters = b.value(t, "/parameters", parameters)
	t.Output = b.value(t, "/output", output)
	// If the turn is still too large, drop whole values, the largest first.
	var prompt int
	if t.Prompt != nil {
		prompt = len(*t.Prompt)
	}
	for range 2 {
		switch {
		case prompt+len(t.Parameters)+len(t.Output) <= int(b.turns.TurnBytes):
		case len(t.Output) > len(t.Parameters):
			t.Output = b.whole(t, "/output", output)
		default:
			t.Parameters = b.whole(t, "/parameters", parameters)
		}
	}
	b.count(t)
}

// redact removes secrets before anything is cut, so that no part of one is kept, nor a digest of a text with one.
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

// whole stores a value as a blob or cuts it completely, and removes the notes about its parts.
func (b *blobStore) whole(t *schema.TurnBody, path string, raw []byte) []byte {
	// These are JSON pointers, of which "/" names the key "", not everything.
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

// text returns a text as a turn keeps it.
func (b *blobStore) text(t *schema.TurnBody, path, text string) string {
	if len(text) < b.least && len(text) <= int(b.turns.FieldBytes) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	if large := len(text) > int(b.turns.FieldBytes); b.store(sum, []byte(text), large) {
		t.Blobs = append(t.Blobs, schema.BlobRef{Path: path, Bytes: len(text), SHA256: digest(sum)})
		return schema.BlobsDir + hex.EncodeToString(sum[:])
	}
	if len(text) <= int(b.turns.FieldBytes) {
		return text
	}
	// Errors are often at the end, so keep that too.
	head, tail := int(b.turns.FieldBytes)-int(b.turns.FieldBytes)/2, len(text)-int(b.turns.FieldBytes)/2
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

// value returns a JSON value as a turn keeps it: each text in it is cut or stored as a blob. raw is valid.
func (b *blobStore) value(t *schema.TurnBody, path string, raw []byte) []byte {
	if len(raw) <= min(b.least, int(b.turns.FieldBytes)) {
		return raw
	}
	var out bytes.Buffer
	out.Grow(min(len(raw), int(b.turns.TurnBytes)))
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
		if kind == '"' && !isName && len(v) > min(b.least, int(b.turns.FieldBytes)) {
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
