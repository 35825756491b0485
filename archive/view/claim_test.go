package view

import (
	"maps"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/schema"
)

func TestABlindSpotCountsUnlessTheBundleSaysThatItWasNotUsed(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		spot schema.BlindSpot
		want string // of the first gap; empty for none
	}{
		"not used":  {schema.BlindSpot{ID: "new", Name: "something new", Exercised: &no}, ""},
		"used":      {schema.BlindSpot{ID: "new", Name: "something new", Exercised: &yes}, "the run used"},
		"not known": {schema.BlindSpot{ID: "new", Name: "something new"}, "it is not known whether"},
		"of an older build": {schema.BlindSpot{Name: "bytes written to character devices and pipes"},
			"it is not known whether"},
		"an amount":        {schema.BlindSpot{ID: "device_bytes", Exercised: &yes}, ""},
		"recorded":         {schema.BlindSpot{ID: "file_ioctls"}, ""},
		"hides everything": {schema.BlindSpot{ID: "kernel_helpers", Exercised: &yes}, "the run used"},
		"new, and says what it hides": {schema.BlindSpot{ID: "new", Exercised: &yes, Hides: []string{"files"}},
			"the run used"},
		"new, and hides others": {schema.BlindSpot{ID: "new", Exercised: &yes, Hides: []string{"hosts"}}, ""},
		"hides hosts":           {schema.BlindSpot{ID: "many_endpoints", Exercised: &yes}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := &archive.Documents{}
			d.Health.KernelLayer, d.Health.CgroupCorrelation = schema.Complete, schema.Clean
			d.Health.Coverage = []schema.Coverage{{Dimension: "filesystem",
				KnownBlindSpots: []schema.BlindSpot{c.spot}}}
			gaps := Claim(d, Files)
			if c.want == "" && len(gaps) > 0 || c.want != "" &&
				(len(gaps) != 1 || !strings.HasPrefix(gaps[0].Text, c.want) || gaps[0].Remedy == "") {
				t.Errorf("gaps %q, want %q", gaps, c.want)
			}
		})
	}
}

// A kernel layer that lacks nothing but what blind spots hide is doubted for these alone.
func TestOnlyWhatABlindSpotHidesIsDoubted(t *testing.T) {
	h := &archive.Documents{}
	yes := true
	layer.Health(&h.Health, layer.Account{Report: &kernel.Report{SelfTestNS: 1},
		Stats: layer.Stats{DoubtfulChanges: 1}})
	if r := h.Health.Reasons; len(r) != 1 || r[0].Code != schema.CodeBlindSpot || r[0].Remedy == "" ||
		h.Health.KernelState != schema.Partial {
		t.Fatalf("%s: %+v", h.Health.KernelState, r)
	}
	h.Health.CgroupCorrelation, h.Health.NetworkEndpointClaimScope = schema.Clean, schema.PeerSet
	h.Health.Coverage = []schema.Coverage{{Dimension: "filesystem", KnownBlindSpots: []schema.BlindSpot{
		schema.NewBlindSpot("doubtful_changes", "which file", &yes)}}}
	for _, about := range []Subject{Programs, Hosts, Privilege} {
		if gaps := Claim(h, about); len(gaps) > 0 {
			t.Errorf("%s: %q", about, gaps)
		}
	}
	if gaps := Claim(h, Files); len(gaps) != 1 || gaps[0].Spot != "doubtful_changes" {
		t.Errorf("files: %q", gaps)
	}
	coverage := h.Health.Coverage
	h.Health.Coverage = nil
	if gaps := Claim(h, Programs); len(gaps) != 1 {
		t.Errorf("a reason that the coverage does not bear out: %q", gaps)
	}
	h.Health.Coverage = coverage
	h.Health.Reasons = append(h.Health.Reasons, schema.Reason{Subject: "kernel", Code: "ringbuf_full"})
	if gaps := Claim(h, Programs); len(gaps) != 1 {
		t.Errorf("with another reason: %q", gaps)
	}
}

// The recorder and the readers agree on the blind spots by their ids: each that a health has is judged
// here, and each that is judged is in a health.
func TestEachBlindSpotIsJudged(t *testing.T) {
	rest := maps.Clone(schema.BlindSpots)
	for _, tier := range []kernel.Tier{kernel.TierEBPF, kernel.TierNotify} {
		var h schema.ObservationHealth
		layer.Health(&h, layer.Account{Report: &kernel.Report{Tier: tier}})
		if len(h.Coverage) < 5 {
			t.Errorf("%v: %d dimensions", tier, len(h.Coverage))
		}
		for _, c := range h.Coverage {
			if _, ok := dimensions[c.Dimension]; !ok && c.Dimension != "names" {
				t.Errorf("dimension %s has no subject", c.Dimension)
			}
			seen := map[string]bool{}
			for _, s := range c.KnownBlindSpots {
				delete(rest, s.ID)
				if _, decided := hides(s, c.Dimension, Files); !decided || seen[s.ID] {
					t.Errorf("%s: nothing, or two things, are known of %q: %s", c.Dimension, s.ID, s.Name)
				}
				seen[s.ID] = true
			}
		}
	}
	for id := range rest {
		t.Errorf("no health has %q", id)
	}
	for id, s := range schema.BlindSpots {
		if (len(s.Subjects) == 0) == (s.Why == "") || (len(s.Subjects) == 0) != (s.Remedy == "") {
			t.Errorf("%q needs subjects and a remedy, or the reason for none", id)
		}
	}
}

// TestWhatTheProviderFetchedIsNoListedHost expects that the claim about hosts is open, and no other, if the provider
// loaded something for the agent.
func TestWhatTheProviderFetchedIsNoListedHost(t *testing.T) {
	d := &archive.Documents{}
	d.Health.KernelLayer, d.Health.KernelState = schema.Complete, schema.Complete
	d.Health.CgroupCorrelation = schema.Clean
	d.Health.NetworkEndpointClaimScope = schema.PeerSet
	d.Result.Model = &schema.ModelTotals{Requests: 3}
	if gaps := Claim(d, Hosts); len(gaps) > 0 {
		t.Fatalf("without a fetch the gaps are %q", gaps)
	}
	d.Result.Model.ProviderFetches, d.Result.Model.FetchedHosts = 2, []string{"one.example", "two.example"}
	const want = "2 requests let the provider of the model load, read or run something for the agent, from " +
		"one.example, two.example: the hosts that it contacted are not listed"
	gaps := Claim(d, Hosts)
	if len(gaps) != 1 || gaps[0].Text != want || gaps[0].Remedy != "set model.provider_tools: deny in the policy" {
		t.Errorf("the gaps are %q, want %q", gaps, want)
	}
	if gaps := Claim(d, Files); len(gaps) > 0 {
		t.Errorf("those about files are %q", gaps)
	}
}
