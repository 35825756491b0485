package schema

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// TestDocumentsAreWhatEncodingJSONWrites holds the encoder against encoding/json, over
// every artifact, with fields that are set, empty and zero.
func TestDocumentsAreWhatEncodingJSONWrites(t *testing.T) {
	for _, artifact := range []any{
		&CallEvent{}, &CapabilitySurface{}, &Contract{}, &CorrelationReport{}, &Event{}, &GatewaySession{}, &InclusionProof{},
		&Integrity{}, &Manifest{}, &ObservationHealth{}, &Policy{}, &PolicyEvent{}, &Result{}, &Run{}, &SDKEvent{}, &Turn{},
		&ways{},
	} {
		for seed := range uint64(200) {
			v := reflect.ValueOf(artifact).Elem()
			fill(rand.New(rand.NewPCG(seed, 0)), v)
			sameAsEncodingJSON(t, artifact)
			sameAsEncodingJSON(t, v.Interface()) // without an address
		}
	}
	for _, v := range []any{nil, 1, "a\tb", []any{1, "x", nil, map[string]any{"k": 2.5}}, []string(nil), map[string]int(nil), (*Run)(nil)} {
		sameAsEncodingJSON(t, v)
	}
	for _, v := range []any{func() {}, struct{ C chan int }{}, map[string]any{"a": make(chan int)}} {
		if _, err := Document(v); err == nil {
			t.Errorf("%T was encoded", v)
		}
	}
}

// ways is what no artifact has, but its like.
type ways struct {
	*Limits
	inner
	Addressed  byAddress
	Addresses  []byAddress
	When       time.Time
	WhenSet    time.Time `json:",omitzero"`
	Plain      any
	Skipped    int                `json:"-"`
	Text       map[time.Month]int `json:"text"`
	_          int
	Promoted   struct{ time.Time }
	Deep       **int               `json:"deep,omitempty"`
	Fixed      [2]string           `json:"fixed,omitempty"`
	ByName     map[Label]byAddress `json:"by_name"`
	Fraction   float64
	Structured struct{ A, B []struct{} } `json:"structured,omitempty"`
}

type Label string

type inner struct {
	Inside string `json:"inside"`
}

type byAddress int

func (b *byAddress) MarshalJSON() ([]byte, error) { return []byte(`{ "n": [1, {}] }`), nil }

func sameAsEncodingJSON(t *testing.T, v any) {
	t.Helper()
	for _, indent := range []string{"", "  "} {
		var want bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		e.SetIndent("", indent)
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
		got, err := Line(v)
		if indent != "" {
			got, err = Document(v)
		}
		if err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("%T: %v\n%s\nencoding/json:\n%s", v, err, got, want.Bytes())
		}
	}
}

// fill sets v to something, at random.
func fill(r *rand.Rand, v reflect.Value) {
	if !v.CanSet() {
		return
	}
	v.SetZero()
	if r.IntN(4) == 0 {
		return
	}
	switch v.Interface().(type) {
	case json.RawMessage:
		v.SetBytes([]byte([]string{`{}`, `{ "a": [ ], "b": {"<": [1,2 ]} }`, `"x"`, "[1,\n2]"}[r.IntN(4)]))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(r.Int64N(1e9), 0).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.String:
		v.SetString([]string{"", "plain text", "<a&b>", "é \u2028 \U0001f600", "\x00\x1f\x7f\"\\\n\t\b\f", "bad \xff\xc3", "/a/b-c_d.e"}[r.IntN(7)])
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64())
	case reflect.Float64:
		v.SetFloat([]float64{1, 0.1, 1e-7, 1e21, -12.5}[r.IntN(5)])
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(r, v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(4), 4))
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(4) {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, k)
			fill(r, e)
			v.SetMapIndex(k, e)
		}
	case reflect.Interface:
		v.Set(reflect.ValueOf([]any{"<", 1, nil, map[string]any{}}))
	}
}
