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
			d.Health.Model = kernel.ModelDigest()
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
		all := layer.Coverage(tier)
		if len(all) < 5 {
			t.Errorf("%v: %d dimensions", tier, len(all))
		}
		for _, c := range all {
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
		t.Errorf("no tier has %q", id)
	}
	for id, s := range schema.BlindSpots {
		if (len(s.Subjects) == 0) == (s.Why == "") || (len(s.Subjects) == 0) != (s.Remedy == "") {
			t.Errorf("%q needs subjects and a remedy, or the reason for none", id)
		}
	}
}

// A call after which a claim is open takes that claim alone, and names the program. Without a model, no claim holds.
func TestOpenCallsTakeTheirClaims(t *testing.T) {
	d := &archive.Documents{}
	d.Health.KernelLayer, d.Health.KernelState = schema.Complete, schema.Complete
	d.Health.CgroupCorrelation, d.Health.NetworkEndpointClaimScope = schema.Clean, schema.PeerSet
	d.Health.Model = kernel.ModelDigest()
	all := []Subject{Programs, Processes, Files, Hosts, Privilege}
	for _, about := range all {
		if gaps := Claim(d, about); len(gaps) > 0 {
			t.Errorf("%s without an open call: %q", about, gaps)
		}
	}
	d.Health.Open = []schema.OpenCall{
		{Call: "setsockopt", Operation: "IP_ADD_MEMBERSHIP", Count: 1, Program: "/x", Claims: []string{"hosts"},
			Why: "w"},
		{Call: "keyctl", Count: 2, Program: "/y", Claims: []string{"programs"}, Why: "v"},
	}
	want := map[Subject]string{Hosts: "/x set IP_ADD_MEMBERSHIP (1x): w",
		Programs:  "/y called keyctl (2x): v",
		Processes: "/y called keyctl (2x): v"}
	for _, about := range all {
		gaps := Claim(d, about)
		if len(gaps) > 1 || len(gaps) == 1 != (want[about] != "") || len(gaps) == 1 && gaps[0].Text != want[about] {
			t.Errorf("%s: %q, want %q", about, gaps, want[about])
		}
	}
	d.Health.Model = ""
	for _, about := range all {
		if gaps := Claim(d, about); len(gaps) != 1 || gaps[0].Remedy == "" {
			t.Errorf("%s without a model: %q", about, gaps)
		}
	}
}

// What is not clean about calls names the call, the cause and what to do.
func TestCallsInDoubtAreNamed(t *testing.T) {
	for text, change := range map[string]func(*archive.Documents){
		"call toolu_1 was reported to start, but never to end": func(d *archive.Documents) {
			d.Correlation.Ambiguities = []string{schema.AmbiguousNeverEnded + "toolu_1"}
		},
		"call a:b was reported to start twice": func(d *archive.Documents) {
			d.Correlation.Ambiguities = []string{schema.AmbiguousTwice + "a:b"}
		},
		"what calls did was not observed": func(d *archive.Documents) { d.Health.KernelLayer = schema.Absent },
		"every call was matched, but no cgroup held only the run's processes, so it is not known what the run " +
			"started elsewhere": func(*archive.Documents) {},
	} {
		d := &archive.Documents{}
		d.Health.KernelLayer, d.Health.SDKLayer = schema.Partial, schema.SelfReported
		d.Health.CgroupCorrelation, d.Correlation.Status = schema.Partial, schema.Partial
		change(d)
		gaps := Claim(d, Calls)
		if len(gaps) != 1 || gaps[0].Text != text || gaps[0].Remedy == "" {
			t.Errorf("gaps: %q, want %q and a remedy", gaps, text)
		}
	}
}

// TestWhatTheProviderFetchedIsNoListedHost expects that the claim about hosts is open, and no other, if the provider
// loaded something for the agent.
func TestWhatTheProviderFetchedIsNoListedHost(t *testing.T) {
	d := &archive.Documents{}
	d.Health.KernelLayer, d.Health.KernelState = schema.Complete, schema.Complete
	d.Health.CgroupCorrelation = schema.Clean
	d.Health.NetworkEndpointClaimScope, d.Health.Model = schema.PeerSet, kernel.ModelDigest()
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
