package layer

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// earned is an account against which nothing can be said.
func earned() Account {
	hook := func(id kernel.HookID, n uint64) kernel.HookStatus {
		return kernel.HookStatus{Hook: id, Name: id.String(), Required: true, Attached: true, SelfTested: true,
			Counts: kernel.Counts{Fired: n, Emitted: n}}
	}
	r := &kernel.Report{SelfTestNS: 1, Received: 4, Decoded: 4, Delivered: 4, Forks: 1, Exits: 1}
	for id := kernel.HookExec; id <= kernel.HookUnmodelled; id++ {
		r.Hooks = append(r.Hooks, hook(id, 0))
	}
	r.Hooks[kernel.HookOpen].Counts = kernel.Counts{Fired: 4, Emitted: 4}
	return Account{Report: r, Counts: schema.LayerCounts{Seen: 4, Written: 4},
		Stats: Stats{Received: 4, Written: 4, Forks: 1, Exits: 1,
			ByKind: map[schema.KernelKind]uint64{schema.KindOpen: 4}}, LeftOut: map[string]uint64{"loader": 2}}
}

func judge(a Account) schema.ObservationHealth {
	h := schema.ObservationHealth{Schema: schema.ObservationHealthV0, RunID: "run_1", Platform: "linux",
		PolicyLayer: schema.Absent, SDKLayer: schema.Absent, CgroupCorrelation: schema.Clean}
	Health(&h, a)
	return h
}

func TestCompleteIsEarned(t *testing.T) {
	h := judge(earned())
	if h.KernelLayer != schema.Complete || len(h.Reasons) != 0 ||
		h.NetworkProtocolCoverage != schema.ConnectAndDatagram || h.NetworkEndpointClaimScope != schema.PeerSet ||
		h.LeftOut["loader"] != 2 {
		t.Errorf("an account without fault gives %+v", h)
	}
	for name, c := range map[string]struct {
		change func(*Account)
		code   string
	}{
		"a drop": {func(a *Account) {
			a.Report.Hooks[0].Dropped = 3
			a.Report.Reasons = []kernel.Reason{{Code: kernel.CodeDrops}}
		}, kernel.CodeDrops},
		"no self-test":   {func(a *Account) { a.Report.SelfTestNS = 0 }, CodeNoSelfTest},
		"a full disk":    {func(a *Account) { a.Stats.Dropped, a.Stats.Written = 1, 3 }, CodeLayerDropped},
		"an exit unseen": {func(a *Account) { a.Stats.MissedExits = 1 }, CodeMissedExits},
		"a survivor":     {func(a *Account) { a.Stats.Alive = 1 }, CodeStillAlive},
		"io_uring":       {func(a *Account) { a.Report.IOUringUnseen = true }, CodeIOUring},
		"operations": {func(a *Account) {
			a.Report.IOUringUnfollowed = []uint8{200}
		}, CodeIOUringUnknown},
		"32-bit calls": {func(a *Account) {
			a.Stats.ByKind[schema.KindCompatSyscall] = 1
		}, CodeCompatSyscalls},
		"unknown calls":            {func(a *Account) { a.Report.Undecoded = 1 }, CodeCompatSyscalls},
		"a kernel helper":          {func(a *Account) { a.Stats.Reach.Helpers = 1 }, CodeHelper},
		"a tracer":                 {func(a *Account) { a.Stats.Reach.TracedTimes = 1 }, CodeOutsideTraced},
		"a signal to the recorder": {func(a *Account) { a.Stats.Reach.RunnerSignals = 1 }, CodeRunnerSignalled},
		"an event lost on the way": {func(a *Account) { a.Stats.Received, a.Stats.Written = 3, 3 }, CodeAccount},
		"a line lost":              {func(a *Account) { a.Stats.Written = 3 }, CodeAccount},
	} {
		a := earned()
		c.change(&a)
		h := judge(a)
		if h.KernelLayer != schema.PartialRingbufDrops || !slices.ContainsFunc(h.Reasons, func(r schema.Reason) bool {
			return r.Code == c.code
		}) {
			t.Errorf("%s: %s, %+v", name, h.KernelLayer, h.Reasons)
		}
		for _, r := range h.Reasons {
			if r.Message != "" && r.Remedy == "" {
				t.Errorf("%s: nothing says what to do about %+v", name, r)
			}
		}
		if h.NetworkEndpointClaimScope != schema.DiagnosticOnly {
			t.Errorf("%s: the scope is %s", name, h.NetworkEndpointClaimScope)
		}
	}
}

// Whatever a run is known to have used is one of two things: it can hide something, and the layer is not complete, or
// it limits what is known of lines that say so themselves.
func TestUsedBlindSpotsArePartialOrMarked(t *testing.T) {
	// What the lines of these details say or lack.
	details := map[string]string{
		"user_memory":         "path_source is user_memory",
		"claimed":             "arguments is claimed",
		"reused_descriptors":  "arguments is claimed",
		"claimed_directories": "directory is claimed",
		"mapped_bytes":        "mmap_shared has no bytes",
		"times":               "utime has no times",
		"handed_sockets":      "foreign_socket has no bytes",
		"endpoint_bytes":      "flow has no pid",
		"quic_names":          "flow has no name",
		"pointed_data":        "capset, ptrace and bpf have the call's numbers alone",
		"unparsed":            "marks has unreadable",
		"forgotten_names":     "the line has an address without a name",
	}
	// A run that did everything: each number of its account is one.
	a := earned()
	fill(reflect.ValueOf(&a).Elem())
	a.Stats.Own = kernel.Tally{} // none of it is what assay-run's own helpers did
	h := judge(a)
	if h.KernelLayer == schema.Complete {
		t.Error("a run that used every blind spot has a complete layer")
	}
	for _, c := range h.Coverage {
		for _, s := range c.KnownBlindSpots {
			if s.Exercised == nil || !*s.Exercised {
				continue
			}
			says, limit := details[s.ID]
			if limit == (len(s.Hides) > 0) {
				t.Errorf("%s hides %q, and its lines say %q", s.ID, s.Hides, says)
			}
			delete(details, s.ID)
			one := used([]schema.Coverage{{KnownBlindSpots: []schema.BlindSpot{s}}})
			if partial := len(one) == 1 && strings.HasSuffix(one[0].Message, s.Name); partial == limit {
				t.Errorf("%s alone gives %+v", s.ID, one)
			}
		}
	}
	for id := range details {
		t.Errorf("nothing uses %s", id)
	}
}

// fill makes each number of v one and each flag true, except the tier, in structures and arrays.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fill(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type().Field(i).Name != "Tier" {
				fill(v.Field(i))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	}
}

func TestOneAndMany(t *testing.T) {
	for n, want := range map[int]string{
		1: "1 process had not ended when observation stopped, and what happened after that is not recorded",
		2: "2 processes had not ended when observation stopped, and what happened after that is not recorded",
	} {
		a := earned()
		a.Stats.Alive = n
		if h := judge(a); len(h.Reasons) != 1 || h.Reasons[0].Message != want {
			t.Errorf("%d: %+v", n, h.Reasons)
		}
	}
}

func TestDropsAreCounted(t *testing.T) {
	a := earned()
	a.Report.Hooks[0].Dropped, a.Report.Hooks[3].Dropped = 3, 4
	a.Report.Reasons = []kernel.Reason{{Code: kernel.CodeDrops, Message: "m", Remedy: "r"}}
	h := judge(a)
	if h.RingbufDrops != 7 || h.KernelLayer != schema.PartialRingbufDrops || h.Reasons[0].Remedy != "r" {
		t.Errorf("health is %+v", h)
	}
}

func TestTheNoteIsWordedAsInTheContract(t *testing.T) {
	a := earned()
	a.Report.Hooks[kernel.HookSendmsg4].Attached = false
	h := judge(a)
	want := "s2_kernel_capture: monitor_events=4 ringbuf_drops=0 network_protocol_coverage=connect_only " +
		"network_endpoint_claim_scope=diagnostic_only"
	if !slices.Equal(h.Notes, []string{want}) {
		t.Errorf("notes are %q, want %q", h.Notes, want)
	}
}

func TestNetworkCoverageNeedsHooksThatFire(t *testing.T) {
	for _, c := range []struct {
		connect, datagram bool
		want              string
	}{{true, true, schema.ConnectAndDatagram}, {true, false, schema.ConnectOnly},
		{false, true, schema.DatagramPeerObserved}, {false, false, schema.Unknown}} {
		a := earned()
		a.Report.Hooks[kernel.HookConnect4].SelfTested = c.connect
		a.Report.Hooks[kernel.HookSendmsg4].SelfTested = c.datagram
		if h := judge(a); h.NetworkProtocolCoverage != c.want {
			t.Errorf("connect %v, datagram %v: %s, want %s", c.connect, c.datagram, h.NetworkProtocolCoverage, c.want)
		}
	}
}

func TestAbsentSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code string
	}{
		"off": {nil, CodeOff},
		"no permission": {fmt.Errorf("open: %w",
			&kernel.Unavailable{Reasons: []kernel.Reason{{Code: kernel.CodeNotPermitted, Message: "m",
				Remedy: "run as root"}}}), kernel.CodeNotPermitted},
		"something else":   {errors.New("boom"), kernel.CodeLoadFailed},
		"no reason at all": {&kernel.Unavailable{}, kernel.CodeLoadFailed},
	} {
		h := judge(Account{Unavailable: c.err})
		if h.KernelLayer != schema.Absent || h.NetworkProtocolCoverage != schema.Absent ||
			h.NetworkEndpointClaimScope != schema.NotApplicable || h.Kernel != nil || len(h.Reasons) != 1 ||
			h.Reasons[0].Code != c.code || len(h.Notes) != 0 {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

func TestBlindSpotsSayWhetherTheyWereExercised(t *testing.T) {
	a := earned()
	a.Report.IOUringUnseen = true
	a.Report.Hooks[kernel.HookSkbIn].Attached = false
	h := judge(a)
	uring := 0
	for _, c := range h.Coverage {
		if none := c.Method == "none"; none != (c.Dimension == "names") {
			t.Errorf("only names lack a hook: %+v", c)
		}
		for _, s := range c.KnownBlindSpots {
			if strings.Contains(s.Name, "io_uring requests on a kernel that does not report") {
				uring++
				if s.Exercised == nil || !*s.Exercised {
					t.Errorf("%s: io_uring is not marked as used", c.Dimension)
				}
			}
		}
	}
	if len(h.Coverage) != 5 || uring != 1 {
		t.Errorf("%d dimensions, %d blind spots through io_uring", len(h.Coverage), uring)
	}
	doc, err := schema.Document(h)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(schema.ObservationHealthV0, doc); err != nil {
		t.Errorf("%v in %s", err, doc)
	}
}
