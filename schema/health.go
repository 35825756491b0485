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
	// ModelLayer is complete (the kernel layer saw no byte go to the model gateway that the gateway does not have),
	// unconfirmed (nothing is known to be missing, and nothing but the gateway itself says so), partial, or absent
	// (the gateway did not start). Empty without a model gateway, and so are the next three.
	ModelLayer string `json:"model_layer,omitempty"`
	// ModelFlow is what ModelLayer rests on; nil where nobody counted but the gateway.
	ModelFlow *ModelFlow `json:"model_flow,omitempty"`
	// ModelPath says whether the command could reach models in another way than by the gateway: only (its sandbox
	// has no other way out), alone (it had one, and the kernel layer shows that it did not use it),
	// bypass_possible, or unknown.
	ModelPath string `json:"model_path,omitempty"`
	// ModelBypasses are the connections that ModelPath is bypass_possible for. They may be about something else,
	// such as telemetry.
	ModelBypasses []ModelBypass `json:"model_bypasses,omitempty"`
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
	// Judgements tell that the verdict of the contract is not that of the run itself: the changes that
	// the run left were judged again, in a clean workspace. The oldest is first.
	Judgements []Judgement `json:"judgements,omitempty"`
	// Redaction says what was taken out of the members before they were
	// written; absent in bundles of recorders that did not redact.
	Redaction *Redaction `json:"redaction,omitempty"`
}

// ModelFlow is how many bytes passed between the command and the model gateway, without what others sent it.
type ModelFlow struct {
	Connections       uint64 `json:"connections"`
	ToGateway         uint64 `json:"to_gateway"` // read by the gateway
	FromGateway       uint64 `json:"from_gateway"`
	KernelToGateway   uint64 `json:"kernel_to_gateway"` // on the wire: what TCP sends twice counts twice
	KernelFromGateway uint64 `json:"kernel_from_gateway"`
}

// ModelBypass is a host that the command reached and that may have answered for a model.
type ModelBypass struct {
	Endpoint string  `json:"endpoint"` // its address
	Name     string  `json:"name,omitempty"`
	ExecID   *uint64 `json:"exec_id"` // the first process that reached it; null where that is not known
	Exe      string  `json:"exe,omitempty"`
	BytesOut uint64  `json:"bytes_out"`
	BytesIn  uint64  `json:"bytes_in"`
}

// Where is the host's name with its address.
func (b *ModelBypass) Where() string {
	if b.Name == "" {
		return b.Endpoint
	}
	return b.Name + " (" + b.Endpoint + ")"
}

// Words of ModelPath.
const (
	ModelPathOnly   = "only"
	ModelPathAlone  = "alone"
	ModelPathBypass = "bypass_possible"
)

// Judgement is one evaluation of a contract on the changes that a bundle keeps.
type Judgement struct {
	// From is the identity of that bundle.
	From string `json:"from"`
	// By is the program.
	By string `json:"by"`
	// JudgedAt is the wall clock at its end, RFC 3339 in UTC.
	JudgedAt string `json:"judged_at"`
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

// LayerCounts is one layer's account: Seen = Written + Coalesced + Filtered + Dropped.
type LayerCounts struct {
	Seen      uint64 `json:"seen"`
	Written   uint64 `json:"written"`
	Coalesced uint64 `json:"coalesced"`
	Filtered  uint64 `json:"filtered"`
	Dropped   uint64 `json:"dropped"`
}
