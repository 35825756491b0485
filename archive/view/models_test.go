package view

import (
	"bytes"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

func TestSummaryOfModels(t *testing.T) {
	b := sample()
	b.docs.Health.ModelLayer = schema.Unconfirmed
	b.docs.Result.Model = &schema.ModelTotals{Requests: 3, Refused: 1, UsageUnknown: 1,
		ModelUsage: schema.ModelUsage{InputTokens: new(int64(23))}}
	s, err := Summarize(t.Context(), b, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := s.WriteText(&out, Page{All: true}); err != nil {
		t.Fatal(err)
	}
	want := "models     3 requests, 1 refused; tokens: 23 input, unknown output, unknown for 1 answer; " +
		"layer unconfirmed\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("the page is without %q:\n%s", want, &out)
	}
}
