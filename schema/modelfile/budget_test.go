package modelfile

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

func TestBudgetIsReadAndPrinted(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Budget
	}{
		{"requests=20,tokens=2M,cost=5", Budget{Requests: 20, Tokens: 2_000_000, Cost: 5}},
		{"tokens=1.5k", Budget{Tokens: 1500}},
		{"cost=0.25", Budget{Cost: 0.25}},
		{"requests=1G", Budget{Requests: 1_000_000_000}},
	} {
		var b, again Budget
		if err := b.Set(tt.text); err != nil || b != tt.want {
			t.Errorf("%s is %+v, %v; want %+v", tt.text, b, err, tt.want)
		}
		if err := again.Set(b.String()); err != nil || again != b {
			t.Errorf("%s, which is %q, is read as %+v, %v", tt.text, b.String(), again, err)
		}
		var fromFile Budget
		doc, err := json.Marshal(b)
		if err == nil {
			err = json.Unmarshal(doc, &fromFile)
		}
		if err != nil || fromFile != b {
			t.Errorf("%s is written as %s, which is read as %+v, %v", tt.text, doc, fromFile, err)
		}
	}
}

// TestEachFaultOfABudgetIsTold has several faults in one text.
func TestEachFaultOfABudgetIsTold(t *testing.T) {
	before := Budget{Requests: 7, End: true}
	b := before
	err := b.Set("requests=0,tokens=many,cost=-1,turns=3,=")
	if err == nil || b != before {
		t.Fatalf("it is taken for %+v, %v", b, err)
	}
	for _, name := range []string{`"requests"`, `"tokens"`, `"cost"`, `"turns"`, `""`} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error is without %s: %v", name, err)
		}
	}
	for _, text := range []string{"", "requests=", "requests=1.5", "requests=-1", "requests=1e3", "requests=0x10",
		"tokens=1e300", "tokens=NaN", "tokens=2MB", "cost=Inf", "cost=NaN", "cost=0", "requests=1,requests=2"} {
		if err := new(Budget).Set(text); err == nil {
			t.Errorf("%q is taken for a budget", text)
		}
	}
}

func prices(t *testing.T, text string) *Prices {
	t.Helper()
	p, err := ParsePrices([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const someprices = `version: 1
models:
  - {model: "claude-x*", input: 3, cache_read: 0.3, cache_creation: 3.75, output: 15}
  - {model: "plain", input: 1, output: 2}
  - {model: "*-free", input: 0, output: 0}
`

func TestCost(t *testing.T) {
	p := prices(t, someprices)
	usage := func(in, read, created, out int64) *schema.ModelUsage {
		return &schema.ModelUsage{InputTokens: &in, CacheReadInputTokens: &read, CacheCreationInputTokens: &created,
			OutputTokens: &out}
	}
	for _, tt := range []struct {
		model string
		usage *schema.ModelUsage
		want  *float64
	}{
		{"claude-x-1", usage(23, 7, 5, 9), new(0.00018885)}, // 11×3 + 7×0.3 + 5×3.75 + 9×15
		{"plain", usage(23, 7, 5, 9), new(0.000041)},        // 23×1 + 9×2
		{"plain", &schema.ModelUsage{InputTokens: new(int64(1)), OutputTokens: new(int64(0))}, new(0.000001)},
		{"m-free", usage(23, 7, 5, 9), new(0.0)},
		{"unknown", usage(23, 7, 5, 9), nil},
		{"plain", &schema.ModelUsage{InputTokens: new(int64(1))}, nil},
	} {
		if d := cmp.Diff(tt.want, p.Of(tt.model).Cost(tt.usage)); d != "" {
			t.Errorf("cost of %s (-want +got):\n%s", tt.model, d)
		}
	}
	if (*Prices)(nil).Of("plain") != nil {
		t.Error("there are prices without a list")
	}
}

func TestEachFaultOfAPriceListIsTold(t *testing.T) {
	_, err := ParsePrices([]byte(`version: 2
models:
  - {model: "[", input: 1, output: 2}
  - {model: a, input: -1, output: -2}
  - {input: 1, output: 1}
  - {model: b, output: 2000000000}
`))
	if err == nil {
		t.Fatal("it is taken for a price list")
	}
	for _, want := range []string{"version: found 2", `"[" is not a valid glob`, "models[1]: input is -1",
		"models[2]: model is missing", "models[3]: input is missing", "models[3]: output is 2e+09"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error is without %q: %v", want, err)
		}
	}
	for _, text := range []string{"", "models: []", "{", "models: [{model: a, input: x, output: 1}]", "model: x",
		"models: [{model: a, input: 1, input: 2, output: 1}]"} {
		if p, err := ParsePrices([]byte(text)); err == nil {
			t.Errorf("%q is taken for the price list %+v", text, p)
		}
	}
}
