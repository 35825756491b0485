package recording

import (
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/schema"
)

// Head opens a layer line: the members of its body follow.
func Head(dst []byte, schemaID, runID string, seq uint64) []byte {
	dst = append(dst, `{"schema":"`...)
	dst = append(dst, schemaID...)
	dst = append(dst, `","run_id":"`...)
	dst = append(dst, runID...) // letters, digits, '_' and '-'
	dst = append(dst, `","seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	return append(dst, ',')
}

// append writes one line whose body is an encoded, non-empty JSON object.
func (r *Run) append(layer, schemaID string, body []byte) error {
	return r.failed(r.To.Recorder.Append(layer, func(dst []byte, seq uint64) []byte {
		return append(Head(dst, schemaID, r.ID, seq), body[1:]...)
	}))
}

// Decision writes a line of the policy layer: an encoded policy event without
// what the recorder stamps.
func (r *Run) Decision(body []byte) error {
	return r.append(schema.PolicyPath, schema.PolicyEventV0, body)
}

// CallEvent writes a line of the audit layer, an encoded call event without what
// the recorder stamps, and counts it by its outcome.
func (r *Run) CallEvent(body []byte, kind string) error {
	err := r.append(schema.AuditPath, schema.CallEventV2, body)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls[kind]++
	}
	return err
}

// PutSession writes session.json.
func (r *Run) PutSession() error {
	r.documents.Lock()
	defer r.documents.Unlock()
	r.mu.Lock()
	s := r.session()
	r.mu.Unlock()
	doc, err := schema.Document(s)
	if err != nil {
		return err
	}
	return r.failed(r.To.Recorder.Put(schema.SessionPath, doc))
}

// PutPolicy writes policy.json when there is a policy to tell of.
func (r *Run) PutPolicy() error {
	r.documents.Lock()
	defer r.documents.Unlock()
	d, any := r.Rules.Document(r.ID)
	if !any {
		return nil
	}
	doc, err := schema.Document(d)
	if err != nil {
		return err
	}
	return r.failed(r.To.Recorder.Put(schema.PolicyFilePath, doc))
}

// Sync makes everything recorded so far survive a power failure.
func (r *Run) Sync() error { return r.failed(r.To.Recorder.Sync()) }

// Record brings turns under their caps and writes them: contiguous, in order,
// and in one write. It returns the index of the first.
func (r *Run) Record(turns []schema.TurnBody) (first uint64, err error) {
	bodies := make([][]byte, len(turns))
	for i := range turns {
		turns[i].Record = "turn"
		r.blobs.trim(&turns[i])
		if bodies[i], err = json.Marshal(&turns[i]); err != nil {
			return 0, err
		}
	}
	encode := func(dst []byte, seq uint64, i int) []byte {
		if i == 0 {
			first = seq
		}
		start := len(dst)
		dst = Head(dst, schema.TurnV0, r.ID, seq)
		dst = append(dst, `"index":`...)
		dst = strconv.AppendUint(dst, seq, 10)
		dst = append(dst, ',')
		dst = append(dst, bodies[i][1:]...)
		r.measure(seq, len(dst)-start+1)
		return dst
	}
	if err := r.To.Recorder.AppendBatch(schema.TurnsPath, len(bodies), encode); err != nil {
		return 0, r.failed(err)
	}
	r.mu.Lock()
	r.turns += uint64(len(bodies))
	close(r.appended)
	r.appended = make(chan struct{})
	r.mu.Unlock()
	return first, nil
}

// indexEvery is how many turns lie between two known offsets of a turns file.
const indexEvery = 1024

// measure notes where turns lie in their file. The recorder calls encode for
// one line at a time and in order. A line that it then refuses breaks the
// recording anyway.
func (r *Run) measure(seq uint64, length int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seq%indexEvery == 0 {
		r.offsets = append(r.offsets, r.size)
	}
	r.size += int64(length)
}
