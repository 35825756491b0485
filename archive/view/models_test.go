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
	b.docs.Health.ModelPath = schema.ModelPathBypass
	b.docs.Result.Model = &schema.ModelTotals{Requests: 3, Refused: 1, UsageUnknown: 1, Cost: new(0.25), CostUnknown: 2,
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
		"cost 0.25, unknown for 2 answers; layer unconfirmed; path bypass possible\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("the page is without %q:\n%s", want, &out)
	}
}

func TestClaimsAboutModels(t *testing.T) {
	totals := func(f func(*schema.ModelTotals)) *schema.ModelTotals {
		m := &schema.ModelTotals{Requests: 1}
		if f != nil {
			f(m)
		}
		return m
	}
	for _, tt := range []struct {
		name        string
		model       *schema.ModelTotals
		layer, path string
		about       Subject
		want        string // in the only gap; empty: there is none
	}{
		{"no gateway", nil, "", "", Models, "no model gateway"},
		{"no gateway, and so no path", nil, "", "", ModelPath, "no model gateway"},
		{"a complete layer", totals(nil), schema.Complete, schema.ModelPathAlone, Models, ""},
		{"an unconfirmed layer", totals(nil), schema.Unconfirmed, schema.ModelPathOnly, Tokens,
			"the model layer is unconfirmed"},
		{"a path that is known is known without a layer", totals(nil), schema.Unconfirmed, schema.ModelPathOnly,
			ModelPath, ""},
		{"an unknown path", totals(nil), schema.Complete, schema.Unknown, ModelPath, "past the gateway"},
		{"answers that do not say what they used", totals(func(m *schema.ModelTotals) { m.UsageUnknown = 2 }),
			schema.Complete, schema.ModelPathAlone, Tokens, "2 answers do not say"},
		{"which says nothing of how many there were", totals(func(m *schema.ModelTotals) { m.UsageUnknown = 2 }),
			schema.Complete, schema.ModelPathAlone, Models, ""},
		{"answers without a price", totals(func(m *schema.ModelTotals) { m.CostUnknown = 1 }), schema.Complete,
			schema.ModelPathAlone, Cost, "what 1 answer cost"},
	} {
		b := sample()
		b.docs.Health.ModelLayer, b.docs.Health.ModelPath, b.docs.Result.Model = tt.layer, tt.path, tt.model
		gaps := Claim(&b.docs, tt.about)
		switch {
		case tt.want == "" && len(gaps) > 0:
			t.Errorf("%s: %v", tt.name, gaps)
		case tt.want != "" && (len(gaps) != 1 || !strings.Contains(gaps[0].Text, tt.want)):
			t.Errorf("%s: %v, want one with %q", tt.name, gaps, tt.want)
		}
	}
}
