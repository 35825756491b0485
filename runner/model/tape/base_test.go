package tape

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// TestBodiesThatGrow cuts the bodies of a conversation that grows, shrinks and changes, and restores them.
func TestBodiesThatGrow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	message := func() string {
		return fmt.Sprintf(`{"role":"user","content":"%s"}`, strings.Repeat("x", random.IntN(200)))
	}
	messages := []string{message()}
	var bases Bases
	whole := map[uint64]jsontext.Value{}
	var all, cut int
	for seq := range uint64(300) {
		switch at := random.IntN(len(messages)); random.IntN(12) {
		case 0:
			messages[at] = message()
		case 1:
			messages = append(messages[:at:at], messages[at+1:]...)
			messages = append(messages, message())
		default:
			messages = append(messages, message(), message())
		}
		body := jsontext.Value(fmt.Sprintf(`{"model":"m","n":%d,"tools":[%s],"messages":[%s],"empty":[],"same":[{}]}`, seq,
			strings.Repeat(`{"name":"a tool"},`, 50)+"{}", strings.Join(messages, ",")))
		rest, of := bases.Cut(body)
		bases.Keep(seq, body)
		whole[seq] = body
		all, cut = all+len(body), cut+len(rest)
		if of == nil {
			if string(rest) != string(body) {
				t.Fatalf("%s is not the whole body %s", rest, body)
			}
			continue
		}
		got, err := wholeOf(rest, of, whole[of.Seq])
		if err != nil {
			t.Fatalf("line %d: %v", seq, err)
		}
		if d := cmp.Diff(parsed(body), parsed(got)); d != "" {
			t.Fatalf("line %d (-want +got):\n%s", seq, d)
		}
	}
	if cut*10 > all {
		t.Errorf("%d bytes are written of %d", cut, all)
	}
}

func TestBasesThatDoNotFit(t *testing.T) {
	from := jsontext.Value(`{"a":1,"list":[1,2,3]}`)
	for _, m := range []schema.ModelBase{
		{Members: []string{"b"}},
		{Items: map[string][][2]int{"list": {{0, 4}}}}, {Items: map[string][][2]int{"list": {{4, 1}}}},
		{Items: map[string][][2]int{"list": {{-1, 1}}}}, {Items: map[string][][2]int{"list": {{0, 0}}}},
		{Items: map[string][][2]int{"list": {{1, 1}, {0, 1}}}}, {Items: map[string][][2]int{"list": {{1, 1 << 62}}}},
	} {
		if got, err := wholeOf(jsontext.Value(`{"list":[0]}`), &m, from); err == nil {
			t.Errorf("%+v gives %s", m, got)
		}
	}
	if _, err := wholeOf(jsontext.Value(`{}`), &schema.ModelBase{}, nil); err == nil {
		t.Error("a line that is missing is a base")
	}
}
