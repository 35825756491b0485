package schema

import (
	"path"
	"strings"
)

// Schema identifiers, the value of the "schema" key of each artifact.
const (
	ManifestV0          = "assay.runner.archive_manifest.v0"
	EventV0             = "assay.runner.event.v0"
	KernelEventV0       = "assay.runner.kernel_event.v0"
	KernelEventV1       = "assay.runner.kernel_event.v1"
	PolicyEventV0       = "assay.runner.policy_event.v0"
	SDKEventV0          = "assay.runner.sdk_event.v0"
	TurnV0              = "assay.runner.turn.v0"
	CallEventV2         = "assay.runner.call_event.v2"
	ModelEventV0        = "assay.runner.model_event.v0"
	CapabilitySurfaceV0 = "assay.runner.capability_surface.v0"
	ObservationHealthV0 = "assay.runner.observation_health.v0"
	CorrelationReportV0 = "assay.runner.correlation_report.v0"
	ResultV0            = "assay.runner.result.v0"
	RunV0               = "assay.runner.run.v0"
	ContractV0          = "assay.runner.contract.v0"
	PolicyV0            = "assay.runner.policy.v0"
	GatewaySessionV0    = "assay.runner.gateway_session.v0"
	IntegrityV0         = "assay.runner.integrity.v0"
	InspectionV0        = "assay.runner.inspection.v0"
	EvaluationV0        = "assay.runner.evaluation.v0"
	SuiteResultsV0      = "assay.runner.suite_results.v0"
	WorkspaceChangesV0  = "assay.runner.workspace_changes.v0"
)

// Paths of a bundle's members. The layers and documents are in every bundle,
// empty layers included; the stdio members only when something was captured.
const (
	ManifestPath    = "manifest.json"
	RunPath         = "run.json"
	EventsPath      = "events.ndjson"
	KernelPath      = "layers/kernel.ndjson"
	PolicyPath      = "layers/policy.ndjson"
	SDKPath         = "layers/sdk.ndjson"
	TurnsPath       = "layers/turns.ndjson"
	AuditPath       = "layers/audit.ndjson"
	ModelPath       = "layers/model.ndjson" // only with a model gateway
	SurfacePath     = "capability-surface.json"
	HealthPath      = "observation-health.json"
	CorrelationPath = "correlation-report.json"
	ResultPath      = "result.json"
	IntegrityPath   = "integrity.json" // in bundles of this version and later
	StdoutPath      = "stdio/stdout"
	StderrPath      = "stdio/stderr"
	TerminalPath    = "stdio/terminal.cast"
	ContractPath    = "contract.json"           // only with an outcome contract
	ChecksDir       = "checks/"                 // see CheckOutputPath
	PolicyFilePath  = "policy.json"             // only with a policy
	SessionPath     = "session.json"            // only when a client opened recording
	EvaluationPath  = "evaluation.json"         // only with an evaluation file
	BlobsDir        = "blobs/sha256/"           // texts that lines refer to and contents of files, by hex digest
	ChangesPath     = "workspace/changes.json"  // only where workspace changes or artifacts were asked for
	PatchPath       = "workspace/changes.patch" // beside it
)

// Layers lists the NDJSON members that every bundle has, in the order they are created and verified.
var Layers = []string{EventsPath, KernelPath, PolicyPath, SDKPath, TurnsPath, AuditPath}

// AllLayers are Layers and those that only some bundles have: see [Run.Layers].
var AllLayers = []string{EventsPath, KernelPath, PolicyPath, SDKPath, TurnsPath, AuditPath, ModelPath}

// LayerName is the name of the layer at path in observation-health.json:
// lifecycle for events.ndjson, else the file's name without its ending.
func LayerName(layerPath string) string {
	if layerPath == EventsPath {
		return "lifecycle"
	}
	return strings.TrimSuffix(path.Base(layerPath), ".ndjson")
}
