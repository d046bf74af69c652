package api

import "time"

// VersionPhase is where a model version is in its life: the states of TensorFlow-Serving's servables, and validation.
type VersionPhase string

// The phases. gateway/registry has the legal steps between them.
const (
	// PhaseDeclared: it is known, and not wanted to be loaded.
	PhaseDeclared VersionPhase = "declared"
	// PhaseLoading: a replica is starting.
	PhaseLoading VersionPhase = "loading"
	// PhaseValidating: a replica is ready, and is being warmed up and validated.
	PhaseValidating VersionPhase = "validating"
	// PhaseAvailable: it may get traffic.
	PhaseAvailable VersionPhase = "available"
	// PhaseDraining: it gets no traffic any more, and answers what it has accepted.
	PhaseDraining VersionPhase = "draining"
	// PhaseRejected: it did not pass its warm-up or validation, and is not tried again unless it is declared anew.
	PhaseRejected VersionPhase = "rejected"
)

// VersionStatus is a version's place in the life of its model.
type VersionStatus struct {
	Phase VersionPhase `json:"phase"`
	Since time.Time    `json:"since,omitzero"`
	// Aspired says whether it is wanted to be loaded; Source is who declares it: "apply", or the directory that is watched.
	Aspired bool   `json:"aspired"`
	Source  string `json:"source,omitempty"`
	// Reason is for people: why it is in this phase, what failed.
	Reason     string            `json:"reason,omitempty"`
	Labels     []string          `json:"labels,omitempty"`
	Validation *ValidationStatus `json:"validation,omitempty"`
	Drift      *DriftStatus      `json:"drift,omitempty"`
}

// ValidationStatus is what warm-up and validation came to.
type ValidationStatus struct {
	Passed bool      `json:"passed"`
	At     time.Time `json:"at,omitzero"`
	TookMS int64     `json:"took_ms"`
	// WarmedUp is how many warm-up queries were evaluated, Queries how many were compared, Matched how many of those as expected, Failed how
	// many without an answer; Expect is what they were compared with, "labels" or "name@version".
	WarmedUp int    `json:"warmed_up"`
	Queries  int    `json:"queries"`
	Matched  int    `json:"matched"`
	Failed   int    `json:"failed"`
	Expect   string `json:"expect,omitempty"`
	// Extremes is how many extreme inputs were tried, Refused how many of them the model refused.
	Extremes int `json:"extremes"`
	Refused  int `json:"refused"`
	// Reason says why it did not pass.
	Reason string `json:"reason,omitempty"`
}

// DriftStatus compares what is served with what was validated, by population stability indices: below 0.1 nothing has changed to speak
// of, from 0.25 on much has.
type DriftStatus struct {
	// Validated is how many queries the comparison stands on, Served how many lately.
	Validated int `json:"validated"`
	Served    int `json:"served"`
	// Input and Output are the largest index of an input and of an output.
	Input  float64 `json:"input"`
	Output float64 `json:"output"`
	// Features are those that have moved most.
	Features []FeatureDrift `json:"features,omitempty"`
}

// FeatureDrift is one element of an input or output tensor.
type FeatureDrift struct {
	// Name is "input[3]", or "output" for what is taken as a whole.
	Name string  `json:"name"`
	PSI  float64 `json:"psi"`
	// Validated and Served are the means of numbers, or the most frequent labels.
	Validated string `json:"validated,omitempty"`
	Served    string `json:"served,omitempty"`
}

// TrafficStatus is how a model's queries are divided between its versions now.
type TrafficStatus struct {
	Spec TrafficSpec `json:"spec"`
	// Revision is the number of the spec's last change, 0 where nobody has declared it: see [ObjectRevision].
	Revision uint64 `json:"revision"`
	// Declared says whether somebody has declared Spec; otherwise it is the default.
	Declared bool `json:"declared"`
	// Serving is the version that answers what no rule gives to others; empty: none may.
	Serving string `json:"serving,omitempty"`
	// Arms are the versions that answer or are compared.
	Arms    []ArmStatus     `json:"arms,omitempty"`
	Shadow  *ComparedStatus `json:"shadow,omitempty"`
	Rollout *RolloutStatus  `json:"rollout,omitempty"`
}

// ComparedStatus counts the answers of a version that a traffic rule compares with the serving one's, since the rule was set, on this
// gateway.
type ComparedStatus struct {
	Version   string `json:"version"`
	Same      uint64 `json:"same"`
	Different uint64 `json:"different"`
	Failed    uint64 `json:"failed"`
}

// ArmStatus is one version that a traffic rule has to do with. Counts are since the rule was set, on this gateway.
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

// RolloutStatus is how far a learned roll-out is.
type RolloutStatus struct {
	Version string `json:"version"`
	// Cap is the largest part of the queries that the new version may get so far: it doubles as feedback comes.
	Cap float64 `json:"cap"`
	// Verdict is "undecided", "promote" or "retreat", Reason the numbers behind it.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
}

// SourceStatus is one source of model versions.
type SourceStatus struct {
	Name   string `json:"name"`
	Models int    `json:"models"`
	// Problems are what keeps something in it from being served.
	Problems []string `json:"problems,omitempty"`
}

// HistoryEvent is one change of what is declared: who did what when.
type HistoryEvent struct {
	// Revision is the store's after the change, without a store the gateway's own count: the same for all objects that were changed
	// together.
	Revision uint64    `json:"revision"`
	Time     time.Time `json:"time"`
	// By is who asked for it, as far as they have said; Gateway is which gateway took it.
	By      string `json:"by"`
	Gateway string `json:"gateway,omitempty"`
	// Action is what was done: "created", "updated", "deleted", "promoted", "rolled back", "retreated", "restored" (the
	// store had lost it, and a gateway has put it back).
	Action  string `json:"action"`
	Kind    Kind   `json:"kind"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Before is, of a promotion and what takes one back, the version that served before.
	Before string `json:"before,omitempty"`
	// Detail is one line for people: which fields changed.
	Detail string `json:"detail,omitempty"`
}

// History answers a question for it, newest first.
type History struct {
	Events []HistoryEvent `json:"events"`
}

// TrafficList answers a question for traffic.
type TrafficList struct {
	Traffic []TrafficStatus `json:"traffic"`
}
