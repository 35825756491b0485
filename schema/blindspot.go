package schema

// What a blind spot can hide: names or acts of these subjects.
const (
	SubjectPrograms  = "programs"  // what was executed
	SubjectFiles     = "files"     // what was opened, written, changed, removed
	SubjectHosts     = "hosts"     // whom the run talked to
	SubjectPrivilege = "privilege" // system calls that need privilege
)

// CodeBlindSpot is the code of the reason for a kernel layer that is not complete because the run used a blind spot
// that can hide something.
const CodeBlindSpot = "blind_spot_used"

// BlindSpot is something that a method cannot see. If a run used one that can hide something, its kernel layer is not
// complete. The others only limit what is known of recorded acts, such as an amount or a time.
type BlindSpot struct {
	// ID is stable, and empty in bundles of older builds.
	ID   string `json:"id,omitempty"`
	Name string `json:"name"`
	// Exercised is whether the run did it; null when that is not known.
	Exercised *bool `json:"exercised"`
	// Hides are the subjects of which it can hide something: SubjectPrograms and the like. Older builds did not write
	// it; see CanHide.
	Hides []string `json:"hides,omitempty"`
}

// NewBlindSpot returns the blind spot of that id with what it can hide.
func NewBlindSpot(id, name string, exercised *bool) BlindSpot {
	return BlindSpot{ID: id, Name: name, Exercised: exercised, Hides: BlindSpots[id].Subjects}
}

// CanHide returns the subjects of which the blind spot can hide something. known is false if this build does not know
// its id and the bundle does not say.
func (s BlindSpot) CanHide() (subjects []string, known bool) {
	if spot, ok := BlindSpots[s.ID]; ok {
		return spot.Subjects, true
	}
	return s.Hides, len(s.Hides) > 0
}

// Used reports whether the run is known to have used the blind spot, and something may be hidden there.
func (s BlindSpot) Used() bool {
	hides, _ := s.CanHide()
	return len(hides) > 0 && s.Exercised != nil && *s.Exercised
}

// Remedy says how a run can avoid the blind spot; "" if nothing is known to help.
func (s BlindSpot) Remedy() string { return BlindSpots[s.ID].Remedy }

// Hiding says what a blind spot can hide, and how a run can avoid it. If it hides nothing, Why says why.
type Hiding struct {
	Subjects []string
	Remedy   string
	Why      string
}

var (
	files      = []string{SubjectFiles}
	programs   = []string{SubjectPrograms}
	hosts      = []string{SubjectHosts}
	privilege  = []string{SubjectPrivilege}
	everything = []string{SubjectPrograms, SubjectFiles, SubjectHosts, SubjectPrivilege}
)

const rootTier = "run assay-run as root, so that it can observe by eBPF"

// BlindSpots says of each blind spot, by its id, what it can hide.
var BlindSpots = map[string]Hiding{
	// Files.
	"io_uring_unseen": {Subjects: []string{SubjectFiles, SubjectHosts},
		Remedy: "run on Linux 6.1 or later, or without io_uring"},
	"io_uring_commands": {Subjects: files, Remedy: "run it without commands of io_uring to devices"},
	"io_uring_bytes":    {Why: "an amount"},
	"user_memory":       {Why: "doubtful_changes says whether a change has such a name"},
	"claimed": {Why: "doubtful_changes says whether a change has such a name; flows have " +
		"the peers' addresses"},
	"foreign_writes": {Why: "doubtful_changes has each change whose name is neither the kernel's " +
		"object nor its copy"},
	"private_mapping": {Why: "doubtful_changes has each change whose name is neither the kernel's " +
		"object nor its copy"},
	"claimed_directories": {Why: "doubtful_changes says whether a change has such a name"},
	"doubtful_changes":    {Subjects: files, Remedy: "look for such changes with assay-run events"},
	"long_paths":          {Subjects: files, Remedy: "use shorter paths"},
	"failed_links":        {Why: "it changed nothing"},
	"reused_descriptors":  {Why: "doubtful_changes says whether a change has such a name"},
	"mapped_bytes":        {Why: "an amount"},
	"remapped":            {Why: "the open for writing is recorded"},
	"mount_namespace":     {Why: "the events are marked"},
	"io_submit":           {Why: "the open for writing is recorded"},
	"device_bytes":        {Why: "an amount"},
	"handed_files":        {Why: "the writes are recorded"},
	"reads":               {Why: "they are not part of any claim"},
	"times":               {Why: "a time"},
	"file_ioctls":         {Why: "the open for writing is recorded"},
	"ipc":                 {Why: "they are not files"},
	"repeated_path":       {Why: "a process outside of the run has to rename the directory"},
	"links":               {Subjects: files, Remedy: rootTier},
	"unreadable":          {Subjects: files, Remedy: rootTier},
	"writes":              {Subjects: files, Remedy: rootTier},

	// Programs.
	"compat_calls":     {Subjects: everything, Remedy: "run 64-bit programs only"},
	"moved_tasks":      {Subjects: everything, Remedy: "let no process move between cgroups"},
	"kernel_helpers":   {Subjects: everything, Remedy: "run it as a user who cannot set the kernel's helpers"},
	"long_arguments":   {Subjects: programs, Remedy: "give programs fewer arguments"},
	"killed_early":     {Subjects: programs, Remedy: rootTier},
	"execution_killed": {Why: "the execution is recorded"},
	"found_observer":   {Why: "root is trusted"},
	"pid_namespace":    {Why: "a number"},
	"outside_help":     {Why: "no act of the run; a container engine that was asked is a reason of its own"},
	"injected_code":    {Why: "it is executed by a program that is recorded"},
	"own_argv":         {Why: "it was executed by then"},
	"lost_parent":      {Why: "the process is recorded"},
	"lost_status":      {Why: "the process is recorded"},
	"quiet_threads":    {Why: "they did nothing"},
	"checks":           {Why: "no act of the command"},

	// Hosts. The scope of the endpoints says whether sockets and descriptors came from elsewhere.
	"many_endpoints": {Subjects: hosts,
		Remedy: "split the run, so that each part contacts at most 8,192 endpoints"},
	"io_uring_accepts": {Subjects: hosts, Remedy: "accept connections without io_uring"},
	"handed_sockets":   {Why: "their peers are recorded; handed_names says whether DNS messages are missing"},
	"other_sockets": {Subjects: hosts,
		Remedy: "run it without packet sockets, raw sockets and tunnels, as a user without CAP_NET_RAW"},
	"remote_mounts": {Subjects: hosts, Remedy: "mount network file systems before the run"},
	"handed_names": {Subjects: hosts,
		Remedy: "let the run make its sockets to DNS servers itself"},
	"passed_descriptors":     {Why: "the scope of the endpoints"},
	"unix_datagrams":         {Why: "the scope of the endpoints"},
	"background_connections": {Why: "their beginning is recorded"},
	"io_uring_connections":   {Why: "the address is recorded"},
	"failed_addresses":       {Why: "it reached nobody"},
	"endpoint_bytes":         {Why: "an amount"},
	"protocol":               {Subjects: hosts, Remedy: rootTier},
	"accepted":               {Subjects: hosts, Remedy: rootTier},
	"listening_address":      {Subjects: hosts, Remedy: rootTier},
	"many_messages":          {Subjects: hosts, Remedy: rootTier},
	"attempted":              {Subjects: everything, Remedy: rootTier},

	// Names prove nothing about whom the run talked to, so that no claim rests on them.
	"quic_names":      {Why: "a name"},
	"encrypted_dns":   {Why: "a name"},
	"daemon_dns":      {Why: "a name"},
	"cut_messages":    {Why: "a name"},
	"encrypted_hello": {Why: "a name"},
	"unparsed":        {Why: "a name"},
	"forgotten_names": {Why: "a name"},
	"names":           {Why: "a name"},

	// Privilege.
	"limit_signals":    {Why: "the change of the limit is recorded"},
	"terminal_signals": {Why: "the open of the terminal is recorded, or who started the run gave it"},
	"pointed_data":     {Why: "the call is recorded"},
	"observer_maps":    {Subjects: everything, Remedy: "run it as a user who may not use bpf()"},
	"set_user_id":      {Why: "the execution and what the program then does are recorded"},
	"outside_signals":  {Subjects: privilege, Remedy: rootTier},
}
