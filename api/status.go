package api

import (
	"encoding/json"
	"fmt"
	"time"
)

// The status structures are what operators read: the admin API returns them as JSON and the command line prints them.
// The name of a duration ends in its unit.

// ModelState summarises a model version for people.
type ModelState string

// The states of a model version.
const (
	// ModelStarting: no replica is ready yet, and none has failed permanently.
	ModelStarting ModelState = "starting"
	// ModelReady: at least Min replicas are ready.
	ModelReady ModelState = "ready"
	// ModelDegraded: some replicas are ready, fewer than Min.
	ModelDegraded ModelState = "degraded"
	// ModelFailed: no replica is ready and the last start failed. The gateway retries with back-off.
	ModelFailed ModelState = "failed"
	// ModelIdle: no replica is wanted.
	ModelIdle ModelState = "idle"
	// ModelStopping: the version was deleted and its replicas are stopping.
	ModelStopping ModelState = "stopping"
)

// ReplicaState is where a replica is in its life.
type ReplicaState string

// The states of a replica.
const (
	// ReplicaStarting: its process has been requested.
	ReplicaStarting ReplicaState = "starting"
	// ReplicaRunning: its process runs, but its worker is not ready yet.
	ReplicaRunning ReplicaState = "running"
	// ReplicaReady: it accepts batches.
	ReplicaReady ReplicaState = "ready"
	// ReplicaBackoff: its process ended; the next one starts at NextAttempt.
	ReplicaBackoff ReplicaState = "backoff"
	// ReplicaFailed: like ReplicaBackoff, after several failures in a row or a failure that needs a person to fix it.
	ReplicaFailed ReplicaState = "failed"
	// ReplicaStopping: it is being stopped.
	ReplicaStopping ReplicaState = "stopping"
)

// ConditionStatus says whether a condition holds.
type ConditionStatus string

// The values of ConditionStatus.
const (
	ConditionTrue    ConditionStatus = "true"
	ConditionFalse   ConditionStatus = "false"
	ConditionUnknown ConditionStatus = "unknown"
)

// Condition is one fact about an object and the reason for it.
type Condition struct {
	// Type names the condition: "Ready", "Serving" …
	Type   string          `json:"type"`
	Status ConditionStatus `json:"status"`
	// Reason is one word for programs, Message a sentence for people.
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// ModelStatus is the current state of one model version.
type ModelStatus struct {
	Spec ModelSpec `json:"spec"`
	// Revision is the number of the spec's last change: see [ObjectRevision].
	Revision uint64 `json:"revision"`
	// Dir is the directory that the version was declared in; empty if there is none.
	Dir   string     `json:"dir,omitempty"`
	State ModelState `json:"state"`
	// Serving says whether queries that name no version go to this one. ServingVersion is the version that they go to.
	Serving        bool   `json:"serving"`
	ServingVersion string `json:"serving_version,omitempty"`
	// Created is when the version was declared first, since it was deleted last. It is missing if the history does not reach back. For a version
	// of a watched directory it is when this process read it.
	Created    time.Time       `json:"created,omitzero"`
	Replicas   []ReplicaStatus `json:"replicas"`
	QueueDepth int             `json:"queue_depth"`
	Capacity   *CapacityStatus `json:"capacity,omitempty"`
	// Hedges is missing if no query was sent to a second replica.
	Hedges *HedgeStatus `json:"hedges,omitempty"`
	// ObjectiveMicros is the current target for the evaluation time of a batch.
	ObjectiveMicros int64 `json:"objective_micros,omitempty"`
	// Streams is missing unless the model answers in streams.
	Streams *StreamStatus `json:"streams,omitempty"`
	// BusyPoll is missing if the model does not ask for it.
	BusyPoll *BusyPollStatus   `json:"busy_poll,omitempty"`
	Cache    *ModelCacheStatus `json:"cache,omitempty"`
	// Accuracy is the accuracy that the model reports, from 0 to 1. It is missing if the model reports none.
	Accuracy *float64 `json:"accuracy,omitempty"`
	// Measured is missing before anything was measured.
	Measured *MeasuredStatus `json:"measured,omitempty"`
	// Queries counts queries by the name of their code, since the gateway started.
	Queries    map[string]uint64 `json:"queries,omitempty"`
	Rate       RateStatus        `json:"rate"`
	Version    VersionStatus     `json:"lifecycle"`
	Conditions []Condition       `json:"conditions,omitempty"`
	// Logs are the last lines of its replicas' output. They are set only in the description of one model.
	Logs []LogLine `json:"logs,omitempty"`
}

// ReadyReplicas counts the replicas that accept batches.
func (m *ModelStatus) ReadyReplicas() int {
	n := 0
	for i := range m.Replicas {
		if m.Replicas[i].State == ReplicaReady {
			n++
		}
	}
	return n
}

// CountQueries splits queries that are counted by code into those that got a prediction and those that did not.
func CountQueries(byCode map[string]uint64) (ok, failed uint64) {
	for code, n := range byCode {
		if code == OK.String() {
			ok += n
		} else {
			failed += n
		}
	}
	return ok, failed
}

// ReplicaStatus is the current state of one replica. Its counters are those of its current process.
type ReplicaStatus struct {
	ID    uint64       `json:"id"`
	PID   int          `json:"pid,omitempty"`
	State ReplicaState `json:"state"`
	// Since is when it entered the state.
	Since    time.Time `json:"since,omitzero"`
	Restarts int       `json:"restarts"`
	// NextAttempt is when its next process starts, in ReplicaBackoff and ReplicaFailed.
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	// LastExit says how and why the last process ended: "exit status 1 after 0.3 s", "killed: no answer for 30 s".
	LastExit string `json:"last_exit,omitempty"`
	// LastError is the last error text that the worker reported for a batch. It is for operators and never sent to
	// callers.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	// Binding is the name and version of the worker's binding: "xebec-python/0.1.0".
	Binding string `json:"binding,omitempty"`
	// Isolation names the layers that isolate its process. NotIsolated has a sentence for each layer that it lacks on
	// this machine: which, why, and what to do.
	Isolation   []string `json:"isolation,omitempty"`
	NotIsolated []string `json:"not_isolated,omitempty"`
	// Ring says whether descriptors go through shared memory rather than the socket.
	Ring bool `json:"ring,omitempty"`
	// Cap is the largest batch that it is sent now, Outstanding the number of queries that it holds.
	// CapWhy says why the cap is smaller than what the replica can do; it is empty otherwise.
	Cap         int     `json:"cap"`
	CapWhy      string  `json:"cap_why,omitempty"`
	Outstanding int     `json:"outstanding"`
	Profile     Profile `json:"profile"`
	Batches     uint64  `json:"batches"`
	Queries     uint64  `json:"queries"`
	// Concurrency is how many batches its worker evaluates at once, if it is more than one.
	Concurrency int `json:"concurrency,omitempty"`
	// InPlace counts the queries whose input its worker has read where the gateway had received it, without a copy.
	InPlace uint64 `json:"in_place,omitempty"`
}

// Profile summarises a replica's evaluation times on the gateway's clock.
type Profile struct {
	// Samples is the number of batches behind the figures.
	Samples    uint64 `json:"samples"`
	MeanMicros int64  `json:"mean_micros"`
	P99Micros  int64  `json:"p99_micros"`
	// The predicted time of a batch of n is InterceptMicros + n × SlopeMicros.
	InterceptMicros float64 `json:"intercept_micros"`
	SlopeMicros     float64 `json:"slope_micros"`
}

// FunctionStatus is the current state of a function.
type FunctionStatus struct {
	Spec FunctionSpec `json:"spec"`
	// Revision is the number of the spec's last change: see [ObjectRevision].
	Revision uint64 `json:"revision"`
	// Ready says whether a query would find a replica.
	Ready bool `json:"ready"`
	// Models are the versions that its candidates currently mean.
	Models []string `json:"models,omitempty"`
	// Created is when the function was declared first, since it was deleted last. It is missing if the history does not reach back, and for a
	// function of a watched directory.
	Created time.Time `json:"created,omitzero"`
	// Queries counts its queries by the name of their code, since the gateway started. Defaults counts those answered
	// with the default output.
	Queries    map[string]uint64 `json:"queries,omitempty"`
	Defaults   uint64            `json:"defaults"`
	Rate       RateStatus        `json:"rate"`
	Policy     *PolicyStatus     `json:"policy,omitempty"`
	Shadow     *ShadowStatus     `json:"shadow,omitempty"`
	Conditions []Condition       `json:"conditions,omitempty"`
}

// GatewayStatus is the current state of the gateway.
type GatewayStatus struct {
	Version   string    `json:"version"`
	GoVersion string    `json:"go_version"`
	PID       int       `json:"pid"`
	Started   time.Time `json:"started,omitzero"`
	// Listen and Admin are the addresses of the function port and of the admin port.
	Listen string `json:"listen"`
	Admin  string `json:"admin"`
	// GRPC is the address of the gRPC port; missing if there is none.
	GRPC string `json:"grpc,omitempty"`
	// DataDir is where specs are stored; empty if they are not.
	DataDir string `json:"data_dir,omitempty"`
	// Ready is the result of /readyz. Draining says that the gateway is stopping.
	Ready     bool `json:"ready"`
	Draining  bool `json:"draining"`
	Models    int  `json:"models"`
	Functions int  `json:"functions"`
	Replicas  int  `json:"replicas"`
	// Inflight is the number of queries in progress.
	Inflight int `json:"inflight"`
	// Cache is the prediction cache, missing if it is off. Store is the store of learned state, missing if there is
	// none.
	Cache *CacheStatus `json:"cache,omitempty"`
	Store *StoreStatus `json:"store,omitempty"`
	// Node is the machine's resources for replicas.
	Node *NodeStatus `json:"node,omitempty"`
	// Sources are the sources of model versions. Revision is the store's revision that this gateway has.
	Sources    []SourceStatus `json:"sources,omitempty"`
	Revision   uint64         `json:"revision,omitempty"`
	Conditions []Condition    `json:"conditions,omitempty"`
	// Upgrade is missing while no other process takes over.
	Upgrade *UpgradeStatus `json:"upgrade,omitempty"`
	// BusyPoll is missing if the gateway is not configured to spin.
	BusyPoll *BusyPollStatus `json:"busy_poll,omitempty"`
}

// StreamStatus counts the streams of a version since the gateway started.
type StreamStatus struct {
	// Open is how many have had an output and not ended.
	Open int `json:"open"`
	// Outputs is how many outputs they have had, first ones included.
	Outputs uint64     `json:"outputs"`
	Ended   StreamEnds `json:"ended"`
}

// StreamEnds counts streams by how they ended.
type StreamEnds struct {
	// Finished: the model had no more. Left: the caller. Failed: the model, with an error. Lost: the replica ended, or was silent for too long.
	Finished uint64 `json:"finished"`
	Left     uint64 `json:"left"`
	Failed   uint64 `json:"failed"`
	Lost     uint64 `json:"lost"`
}

// BusyPollStatus says whether a process spins before it sleeps.
type BusyPollStatus struct {
	// Micros is the longest spin that is configured.
	Micros int64 `json:"micros"`
	// Off says why the process does not spin; empty: it does, while it expects work.
	Off string `json:"off,omitempty"`
}

// UpgradeStatus is an upgrade that is under way, as one of its two processes sees it.
type UpgradeStatus struct {
	// Role is what the process is that answers, and Peer the number of the other process.
	Role UpgradeRole `json:"role"`
	Peer int         `json:"peer"`
	// Since is when the new process asked to take over.
	Since time.Time   `json:"since,omitzero"`
	Step  UpgradeStep `json:"step"`
	// Share is the canary's part of the new connections, from 0 to 1; 0: there is no canary.
	Share float64 `json:"share,omitempty"`
	// Awaited is what the new process has not loaded yet, for people: versions with the replicas that they have and need.
	Awaited []string `json:"awaited,omitempty"`
}

// UpgradeRole is the part that a process has in an upgrade.
type UpgradeRole string

// The roles. A canary that is promoted is the new process.
const (
	UpgradeOld           UpgradeRole = "old"
	UpgradeNew           UpgradeRole = "new"
	UpgradeCanaryProcess UpgradeRole = "canary"
)

// UpgradeStep is how far an upgrade is.
type UpgradeStep string

// The steps, in their order. A canary is either committed or sent back (UpgradeReturning).
const (
	UpgradePreparing  UpgradeStep = "preparing"  // the old process copies what is declared
	UpgradeLoading    UpgradeStep = "loading"    // the new process starts its replicas
	UpgradeCanary     UpgradeStep = "canary"     // the new process serves a share of the connections
	UpgradeReturning  UpgradeStep = "returning"  // the canary is sent back, and answers what it has
	UpgradeCommitting UpgradeStep = "committing" // the store and the ports go to the new process
	UpgradeFinishing  UpgradeStep = "finishing"  // the new process serves, the old one answers its last requests
)

// Readiness is the answer of /readyz. Ready means that the declarations have been read and queries are accepted; models that are asleep
// count as available. Problems are there with ?verbose: what cannot answer, although it is declared.
type Readiness struct {
	Ready    bool               `json:"ready"`
	Reason   string             `json:"reason,omitempty"`
	Problems []ReadinessProblem `json:"problems,omitempty"`
	// Upgrade is there with ?verbose while another process takes over.
	Upgrade *UpgradeStatus `json:"upgrade,omitempty"`
}

// ReadinessProblem is a function or a model version that cannot answer queries.
type ReadinessProblem struct {
	Kind    Kind       `json:"kind"`
	Name    string     `json:"name"`
	Version string     `json:"version,omitempty"`
	State   ModelState `json:"state"`
	Reason  string     `json:"reason,omitempty"`
}

// LogLine is one line of a replica's output, or of the gateway's messages about the replica.
type LogLine struct {
	Time    time.Time `json:"time"`
	Version string    `json:"version,omitempty"`
	Replica uint64    `json:"replica,omitempty"`
	// Stream is "stdout", "stderr", or "gateway" for the gateway's own messages about the replica.
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

// String formats the line for people: the time, the version and replica, and the text.
func (l LogLine) String() string {
	stream := ""
	if l.Stream != "stdout" {
		stream = " " + l.Stream
	}
	return fmt.Sprintf("%s %s/%d%s: %s", l.Time.Format(time.RFC3339), l.Version, l.Replica, stream, l.Text)
}

// Kind is a kind of object that can be declared.
type Kind string

// The kinds.
const (
	KindModel    Kind = "Model"
	KindFunction Kind = "Function"
	// KindTraffic is how a model's queries are divided between its versions. Its name is the model's.
	KindTraffic Kind = "Traffic"
)

// Action is what applying a declaration did or would do.
type Action string

// The actions.
const (
	Created   Action = "created"
	Updated   Action = "updated"
	Unchanged Action = "unchanged"
	Deleted   Action = "deleted"
)

// Change is what an apply or delete did to one object.
type Change struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Version is empty for all kinds but models.
	Version string `json:"version,omitempty"`
	Action  Action `json:"action"`
	// Note says in a few words what is special about the change.
	Note string `json:"note,omitempty"`
	// Fields are those in which an updated object differs from what was declared before, by their paths.
	Fields []FieldChange `json:"fields,omitempty"`
}

// FieldChange is a field of a declaration that has another value. Its values are JSON in the form that manifests have, nil where the field
// is not there.
type FieldChange struct {
	Path string          `json:"path"`
	Old  json.RawMessage `json:"old,omitempty"`
	New  json.RawMessage `json:"new,omitempty"`
}

// ObjectRevision is the revision of an object. Each change of the declarations has a number, higher than all before it,
// and an object's revision is the number of its own last change. A caller that reads an object, edits it and declares
// it again sends the revision that it read: the gateway makes the change only if the object is still at that revision.
// Revision 0 means that the object is not declared. The default rules of a model's traffic, and what a watched
// directory declares, have revision 0.
type ObjectRevision struct {
	Kind Kind
	Name string
	// Version is empty for all kinds but models.
	Version  string
	Revision uint64
}

// StaleObject is the current state of an object that is not at the expected revision.
type StaleObject struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Version is empty for all kinds but models.
	Version string `json:"version,omitempty"`
	// Revision is 0 if the object is not declared, or no longer.
	Revision uint64 `json:"revision"`
	// Action, By and Time describe the change that came first. They are missing if the history no longer has it.
	Action string    `json:"action,omitempty"`
	By     string    `json:"by,omitempty"`
	Time   time.Time `json:"time,omitzero"`
}

// The admin API's answers, as JSON.

// Changes answers apply, deploy and delete.
type Changes struct {
	Changes []Change `json:"changes"`
	// DryRun says that nothing was changed.
	DryRun bool `json:"dry_run,omitempty"`
}

// ModelList lists models. Every version is an element of its own.
type ModelList struct {
	Models []ModelStatus `json:"models"`
}

// FunctionList lists functions.
type FunctionList struct {
	Functions []FunctionStatus `json:"functions"`
}

// ModelDescription is a model and what depends on it.
type ModelDescription struct {
	Models  []ModelStatus  `json:"models"`
	Traffic *TrafficStatus `json:"traffic,omitempty"`
	// Functions are the functions that name the model.
	Functions []FunctionStatus `json:"functions"`
}

// FunctionDescription is a function and what it depends on.
type FunctionDescription struct {
	Function FunctionStatus `json:"function"`
	// Models are the versions that currently answer it.
	Models []ModelStatus `json:"models"`
}

// VersionInfo is the version of the program that answers.
type VersionInfo struct {
	Version   string `json:"version"`
	GoVersion string `json:"go_version"`
}

// ErrorBody is the body of every failed call to the admin API.
type ErrorBody struct {
	Error ErrorInfo `json:"error"`
}

// ErrorInfo is the code's name and the message.
type ErrorInfo struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// RequestID is the X-Request-Id of the answer, by which the gateway's log has the request.
	RequestID string `json:"request_id,omitempty"`
	// Problems lists the problems in the message one by one, if declarations were refused for their content.
	Problems []Problem `json:"problems,omitempty"`
	// Stale lists the objects that changed after the caller read them, if that is why nothing was changed. Reading them
	// and trying again may succeed. It is empty for other conflicts.
	Stale []StaleObject `json:"stale,omitempty"`
}

// Problem is one problem in a declaration.
type Problem struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Version is empty for all kinds but models.
	Version string `json:"version,omitempty"`
	// Path is the field, as in [FieldError]. It is empty if the problem is about the whole object.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}
