package schema

// Values of the v0 observation health vocabulary.
const (
	Complete             = "complete"
	PartialRingbufDrops  = "partial_ringbuf_drops"
	Absent               = "absent"
	Present              = "present"
	SelfReported         = "self_reported"
	Clean                = "clean"
	Partial              = "partial"
	Failed               = "failed"
	Unknown              = "unknown"
	NotApplicable        = "not_applicable"
	ConnectOnly          = "connect_only"
	DatagramPeerObserved = "datagram_peer_observed"
	ConnectAndDatagram   = "connect_and_datagram_peer_observed"
	DiagnosticOnly       = "diagnostic_only"
	Unconfirmed          = "unconfirmed"
	PeerSet              = "peer_set"
)

// ObservationHealth is observation-health.json: what may be claimed from the
// bundle's layers, and why not more.
type ObservationHealth struct {
	Schema   string `json:"schema"` // ObservationHealthV0
	RunID    string `json:"run_id"`
	Platform string `json:"platform"`
	// KernelLayer is complete, partial_ringbuf_drops or absent: the words of v0,
	// where the second stands for everything between the others.
	KernelLayer string `json:"kernel_layer"`
	// KernelState is complete, partial or absent, and what people are shown. It
	// follows from KernelLayer; set both with SetKernelLayer.
	KernelState  string `json:"kernel_state,omitempty"`
	RingbufDrops uint64 `json:"ringbuf_drops"`
	PolicyLayer  string `json:"policy_layer"`
	SDKLayer     string `json:"sdk_layer"`
	// ModelLayer is unconfirmed (nothing is known to be missing, and nothing but the gateway itself says so) or
	// partial; absent without a model gateway.
	ModelLayer string `json:"model_layer,omitempty"`
	// CgroupCorrelation is clean, partial or failed.
	CgroupCorrelation         string `json:"cgroup_correlation"`
	NetworkProtocolCoverage   string `json:"network_protocol_coverage"`
	NetworkEndpointClaimScope string `json:"network_endpoint_claim_scope"`
	// Notes are "code: message" strings with stable codes.
	Notes []string `json:"notes"`

	// Reasons say why a layer is less than complete.
	Reasons []Reason `json:"reasons"`
	// Hooks are the kernel hooks of the run; empty when none was loaded.
	Hooks []Hook `json:"hooks"`
	// Coverage tells, dimension by dimension, what was and was not watched.
	Coverage []Coverage `json:"coverage"`
	// Layers counts every layer's events by its name (lifecycle, kernel,
	// policy, sdk, turns, audit): seen = written + coalesced + filtered + dropped.
	Layers map[string]LayerCounts `json:"layers"`
	// Kernel is the kernel layer's account, stage by stage; null when absent.
	Kernel *KernelAccount `json:"kernel,omitempty"`
	// LeftOut counts the kernel events that the capability surface leaves out,
	// by class.
	LeftOut map[string]uint64 `json:"left_out,omitempty"`
	// Containment is what kept the command's processes together: cgroup or
	// descent. TamperResistance is none (the command could reach the recorder's
	// memory or files), user (it was another user, without capabilities over it) or
	// sandbox (it could not name it). Both are absent in older bundles and in
	// those of runs that were interrupted.
	Containment      string `json:"containment,omitempty"`
	TamperResistance string `json:"tamper_resistance,omitempty"`
	// Redaction says what was taken out of the members before they were
	// written; absent in bundles of recorders that did not redact.
	Redaction *Redaction `json:"redaction,omitempty"`
}

// The words of Containment and, in rising order, of TamperResistance.
const (
	ByCgroup  = "cgroup"
	ByDescent = "descent"

	ResistsNone    = "none"
	ResistsUser    = "user"
	ResistsSandbox = "sandbox"
)

// SetKernelLayer sets KernelLayer, and KernelState, which follows from it.
func (h *ObservationHealth) SetKernelLayer(layer string) {
	h.KernelLayer, h.KernelState = layer, KernelState(layer)
}

// KernelState is what people are shown for a kernel_layer.
func KernelState(layer string) string {
	if layer == PartialRingbufDrops {
		return Partial
	}
	return layer
}

// Reason is one cause for claiming less, with what would fix it.
type Reason struct {
	// Subject is the layer or thing concerned: kernel, cgroup, limits, ...
	Subject string `json:"subject"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// Hook is one kernel hook and its account over all CPUs:
// fired = filtered + coalesced + emitted + dropped.
type Hook struct {
	Name       string `json:"name"`
	Required   bool   `json:"required"`
	Attached   bool   `json:"attached"`
	SelfTested bool   `json:"self_tested"`
	// Seen is how often the program ran for a task of the session.
	Seen            uint64 `json:"seen"`
	Filtered        uint64 `json:"filtered"`
	Coalesced       uint64 `json:"coalesced"`
	Emitted         uint64 `json:"emitted"`
	Dropped         uint64 `json:"dropped"`
	FailedReads     uint64 `json:"failed_reads"`
	RecursionMisses uint64 `json:"recursion_misses"`
}

// KernelAccount follows kernel events through user space, in records and lines:
//
//	emitted = received
//	received = decoded + malformed
//	decoded + drained + added = written + filtered + coalesced + dropped + parts + self_test
type KernelAccount struct {
	Emitted   uint64 `json:"emitted"`
	Received  uint64 `json:"received"`
	Decoded   uint64 `json:"decoded"`
	Malformed uint64 `json:"malformed"`
	// Drained is how many were taken from the coalescing slots (repeats) and
	// the table of endpoints (flows) at the end instead of through the ring.
	Drained uint64 `json:"drained,omitempty"`
	// Added is how many lines the recorder added for processes that it had not
	// seen forking.
	Added   uint64 `json:"added,omitempty"`
	Written uint64 `json:"written"`
	// Filtered are records that make no line. Coalesced is of older builds.
	Filtered  uint64 `json:"filtered"`
	Coalesced uint64 `json:"coalesced,omitempty"`
	Dropped   uint64 `json:"dropped"`
	// Parts are records that were joined into others (a long argv), SelfTest
	// those of the self-test.
	Parts    uint64 `json:"parts,omitempty"`
	SelfTest uint64 `json:"self_test,omitempty"`
	// Forks are tasks, threads included, that began in the session or were
	// moved into it; Exits those that ended there.
	Forks      uint64 `json:"forks"`
	Exits      uint64 `json:"exits"`
	LeftCgroup uint64 `json:"left_cgroup"`
}

// Coverage is one dimension of observation (filesystem, process, network, ...).
type Coverage struct {
	Dimension       string      `json:"dimension"`
	Method          string      `json:"method"`
	Observes        []string    `json:"observes"`
	KnownBlindSpots []BlindSpot `json:"known_blind_spots"`
}

// BlindSpot is something a method cannot see. ID is stable, and empty in bundles of older
// builds. Exercised is whether the run did it; null when that is not known.
type BlindSpot struct {
	ID        string `json:"id,omitempty"`
	Name      string `json:"name"`
	Exercised *bool  `json:"exercised"`
}

// LayerCounts is one layer's account: Seen = Written + Coalesced + Filtered + Dropped.
type LayerCounts struct {
	Seen      uint64 `json:"seen"`
	Written   uint64 `json:"written"`
	Coalesced uint64 `json:"coalesced"`
	Filtered  uint64 `json:"filtered"`
	Dropped   uint64 `json:"dropped"`
}
