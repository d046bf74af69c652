package api

import "time"

// VersionPhase is a model version's phase in its life cycle: the states of TensorFlow-Serving's servables, plus
// validation.
type VersionPhase string

// The phases. gateway/registry lists the legal transitions.
const (
	// PhaseDeclared: it is known but should not be loaded.
	PhaseDeclared VersionPhase = "declared"
	// PhaseLoading: a replica is starting.
	PhaseLoading VersionPhase = "loading"
	// PhaseValidating: a replica is ready, and is being warmed up and validated.
	PhaseValidating VersionPhase = "validating"
	// PhaseAvailable: it may get traffic.
	PhaseAvailable VersionPhase = "available"
	// PhaseDraining: it gets no more traffic and finishes the queries that it has accepted.
	PhaseDraining VersionPhase = "draining"
	// PhaseRejected: it failed its warm-up or validation. It is not retried until it is declared again.
	PhaseRejected VersionPhase = "rejected"
)

// VersionStatus is a version's state in its model's life cycle.
type VersionStatus struct {
	Phase VersionPhase `json:"phase"`
	Since time.Time    `json:"since,omitzero"`
	// Aspired says whether it should be loaded. Source is where its declaration comes from: "apply", or the watched
	// directory.
	Aspired bool   `json:"aspired"`
	Source  string `json:"source,omitempty"`
	// Reason is for people: why it is in this phase, and what failed.
	Reason     string            `json:"reason,omitempty"`
	Labels     []string          `json:"labels,omitempty"`
	Validation *ValidationStatus `json:"validation,omitempty"`
	// Rehearsal is the last one; nil if it has not rehearsed.
	Rehearsal *RehearsalStatus `json:"rehearsal,omitempty"`
	Drift     *DriftStatus     `json:"drift,omitempty"`
}

// RehearsalStatus says how a version was warmed up with recent queries before it took over from another one. Nothing of it decides
// whether it serves.
type RehearsalStatus struct {
	At     time.Time `json:"at,omitzero"`
	TookMS int64     `json:"took_ms"`
	// Replicas is the number of replicas that were ready when it began. Recent is the number of recent queries of the other version, and
	// Evaluated how many evaluations of them this one made; Failed of these got no answer.
	Replicas  int `json:"replicas"`
	Recent    int `json:"recent"`
	Evaluated int `json:"evaluated"`
	Failed    int `json:"failed"`
	// Reason says why it was cut short; empty if it was not.
	Reason string `json:"reason,omitempty"`
}

// ValidationStatus is the result of warm-up and validation.
type ValidationStatus struct {
	Passed bool      `json:"passed"`
	At     time.Time `json:"at,omitzero"`
	TookMS int64     `json:"took_ms"`
	// WarmedUp is the number of warm-up queries evaluated. Queries is the number of queries compared; Matched of them
	// were as expected and Failed got no answer. Expect is what they were compared with, "labels" or "name@version".
	WarmedUp int    `json:"warmed_up"`
	Queries  int    `json:"queries"`
	Matched  int    `json:"matched"`
	Failed   int    `json:"failed"`
	Expect   string `json:"expect,omitempty"`
	// Extremes is the number of extreme inputs tried. The model refused Refused of them.
	Extremes int `json:"extremes"`
	Refused  int `json:"refused"`
	// Reason says why it failed.
	Reason string `json:"reason,omitempty"`
}

// DriftStatus compares served queries with those of the validation, by population stability indices: below 0.1 means no
// notable change, 0.25 or more means a large one.
type DriftStatus struct {
	// Validated is the number of validation queries compared, Served the number of recent ones.
	Validated int `json:"validated"`
	Served    int `json:"served"`
	// Input and Output are the largest index of an input and of an output.
	Input  float64 `json:"input"`
	Output float64 `json:"output"`
	// Features are those with the largest indices.
	Features []FeatureDrift `json:"features,omitempty"`
}

// FeatureDrift is one element of an input or output tensor.
type FeatureDrift struct {
	// Name is "input[3]", or "output" for a tensor that is compared as a whole.
	Name string  `json:"name"`
	PSI  float64 `json:"psi"`
	// Validated and Served are the means of numbers, or the most frequent labels.
	Validated string `json:"validated,omitempty"`
	Served    string `json:"served,omitempty"`
}

// TrafficStatus is how a model's queries are currently divided between its versions.
type TrafficStatus struct {
	Spec TrafficSpec `json:"spec"`
	// Revision is the number of the spec's last change, 0 if it is not declared: see [ObjectRevision].
	Revision uint64 `json:"revision"`
	// Declared says whether Spec was declared. Otherwise it is the default.
	Declared bool `json:"declared"`
	// Serving is the version that answers queries that no other rule takes. It is empty if no version may serve.
	Serving string `json:"serving,omitempty"`
	// Arms are the versions that answer or are compared.
	Arms    []ArmStatus     `json:"arms,omitempty"`
	Shadow  *ComparedStatus `json:"shadow,omitempty"`
	Rollout *RolloutStatus  `json:"rollout,omitempty"`
}

// ComparedStatus counts the answers of a version that a traffic rule compares with the serving version's, since the
// rule was set, on this gateway.
type ComparedStatus struct {
	Version   string `json:"version"`
	Same      uint64 `json:"same"`
	Different uint64 `json:"different"`
	Failed    uint64 `json:"failed"`
}

// ArmStatus is one version that a traffic rule names. Counts are since the rule was set, on this gateway.
type ArmStatus struct {
	Version string `json:"version"`
	// Rule is "serving", "split", "shadow" or "rollout".
	Rule string `json:"rule"`
	// Share is the part of the queries that it answers, from 0 to 1.
	Share    float64 `json:"share"`
	Queries  uint64  `json:"queries"`
	Failed   uint64  `json:"failed"`
	Feedback uint64  `json:"feedback"`
	MeanLoss float64 `json:"mean_loss"`
	P50MS    float64 `json:"p50_ms"`
	P99MS    float64 `json:"p99_ms"`
}

// RolloutStatus is the progress of a learned roll-out.
type RolloutStatus struct {
	Version string `json:"version"`
	// Cap is the largest part of the queries that the new version may get so far. It doubles as feedback arrives.
	Cap float64 `json:"cap"`
	// Verdict is "undecided", "promote" or "retreat". Reason gives the numbers behind it.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
}

// SourceStatus is one source of model versions.
type SourceStatus struct {
	Name   string `json:"name"`
	Models int    `json:"models"`
	// Problems say why parts of the source are not served.
	Problems []string `json:"problems,omitempty"`
}

// HistoryEvent is one change of a declaration.
type HistoryEvent struct {
	// Revision is the store's revision after the change, or the gateway's own count if there is no store. Objects that
	// changed together have the same one.
	Revision uint64    `json:"revision"`
	Time     time.Time `json:"time"`
	// By is the caller who asked for it, as far as known. Gateway is the gateway that accepted it.
	By      string `json:"by"`
	Gateway string `json:"gateway,omitempty"`
	// Action is "created", "updated", "deleted", "promoted", "rolled back", "retreated" or "restored" (the store had
	// lost it, and a gateway put it back).
	Action  string `json:"action"`
	Kind    Kind   `json:"kind"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Before is the version that served before a promotion, or before a promotion was undone.
	Before string `json:"before,omitempty"`
	// Detail is one line for people: which fields changed.
	Detail string `json:"detail,omitempty"`
}

// History lists changes, newest first.
type History struct {
	Events []HistoryEvent `json:"events"`
	// Measured is the measured performance of the versions of the model that the history is of, the oldest version first.
	Measured []MeasuredStatus `json:"measured,omitempty"`
}

// TrafficList lists models' traffic.
type TrafficList struct {
	Traffic []TrafficStatus `json:"traffic"`
}
