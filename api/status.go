package api

import (
	"fmt"
	"time"
)

// The status structures are what operators read: the admin API answers them as JSON and the command line prints them.
// Durations are in the unit that ends their name.

// ModelState sums up a model version for people.
type ModelState string

// The states of a model version.
const (
	// ModelStarting: no replica is ready yet, and none has failed for good.
	ModelStarting ModelState = "starting"
	// ModelReady: at least Min replicas are ready.
	ModelReady ModelState = "ready"
	// ModelDegraded: some replicas are ready, fewer than Min.
	ModelDegraded ModelState = "degraded"
	// ModelFailed: no replica is ready and the last one that started ended badly; it is tried again with back-off.
	ModelFailed ModelState = "failed"
	// ModelIdle: no replica is wanted.
	ModelIdle ModelState = "idle"
	// ModelStopping: the version was deleted and its replicas are ending.
	ModelStopping ModelState = "stopping"
)

// ReplicaState is where a replica is in its life.
type ReplicaState string

// The states of a replica.
const (
	// ReplicaStarting: its process has been asked for.
	ReplicaStarting ReplicaState = "starting"
	// ReplicaRunning: its process runs, its worker is not ready yet.
	ReplicaRunning ReplicaState = "running"
	// ReplicaReady: it takes batches.
	ReplicaReady ReplicaState = "ready"
	// ReplicaBackoff: its process ended; the next one starts at NextAttempt.
	ReplicaBackoff ReplicaState = "backoff"
	// ReplicaFailed: as ReplicaBackoff, after several failures in a row or one that only a person can mend.
	ReplicaFailed ReplicaState = "failed"
	// ReplicaStopping: it is being ended.
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
	// Type is what is judged: "Ready", "Serving" …
	Type   string          `json:"type"`
	Status ConditionStatus `json:"status"`
	// Reason is one word for programs, Message a sentence for people.
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// ModelStatus is one version of a model as it stands.
type ModelStatus struct {
	Spec ModelSpec `json:"spec"`
	// Revision is the number of the spec's last change: see [ObjectRevision].
	Revision uint64 `json:"revision"`
	// Dir is the directory that the version was declared in, empty when there is none.
	Dir   string     `json:"dir,omitempty"`
	State ModelState `json:"state"`
	// Serving says whether queries that name no version go to this one; ServingVersion is the one they go to.
	Serving        bool            `json:"serving"`
	ServingVersion string          `json:"serving_version,omitempty"`
	Created        time.Time       `json:"created,omitzero"`
	Replicas       []ReplicaStatus `json:"replicas"`
	QueueDepth     int             `json:"queue_depth"`
	Capacity       *CapacityStatus `json:"capacity,omitempty"`
	// Hedges is missing where no query was sent to a second replica.
	Hedges *HedgeStatus `json:"hedges,omitempty"`
	// ObjectiveMicros is the evaluation time of a batch that is aimed at now.
	ObjectiveMicros int64             `json:"objective_micros,omitempty"`
	Cache           *ModelCacheStatus `json:"cache,omitempty"`
	// Accuracy is what the model says of itself, from 0 to 1; missing where it says nothing.
	Accuracy *float64 `json:"accuracy,omitempty"`
	// Queries counts queries by the name of their code, since the gateway started.
	Queries    map[string]uint64 `json:"queries,omitempty"`
	Rate       RateStatus        `json:"rate"`
	Version    VersionStatus     `json:"lifecycle"`
	Conditions []Condition       `json:"conditions,omitempty"`
	// Logs are the last lines of its replicas; only where one model is asked for.
	Logs []LogLine `json:"logs,omitempty"`
}

// ReadyReplicas counts the replicas that take batches.
func (m *ModelStatus) ReadyReplicas() int {
	n := 0
	for i := range m.Replicas {
		if m.Replicas[i].State == ReplicaReady {
			n++
		}
	}
	return n
}

// ReplicaStatus is one replica as it stands. Its counters are those of its present process.
type ReplicaStatus struct {
	ID    uint64       `json:"id"`
	PID   int          `json:"pid,omitempty"`
	State ReplicaState `json:"state"`
	// Since is when the state was entered.
	Since    time.Time `json:"since,omitzero"`
	Restarts int       `json:"restarts"`
	// NextAttempt is when its next process starts, in ReplicaBackoff and ReplicaFailed.
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	// LastExit says how the last process ended and why: "exit status 1 after 0.3 s", "killed: no answer for 30 s".
	LastExit string `json:"last_exit,omitempty"`
	// LastError is the last text that the worker gave for a failed batch. It is for operators, never for callers.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	// Binding is what the worker calls itself: "xebec-python/0.1.0".
	Binding string `json:"binding,omitempty"`
	// Ring says whether descriptors go through shared memory rather than the socket.
	Ring bool `json:"ring,omitempty"`
	// Cap is the largest batch that is sent now, Outstanding the queries it holds.
	Cap         int     `json:"cap"`
	Outstanding int     `json:"outstanding"`
	Profile     Profile `json:"profile"`
	Batches     uint64  `json:"batches"`
	Queries     uint64  `json:"queries"`
}

// Profile is what is known of a replica's evaluation times, from the gateway's own clock.
type Profile struct {
	// Samples is the number of batches that the figures stand on.
	Samples    uint64 `json:"samples"`
	MeanMicros int64  `json:"mean_micros"`
	P99Micros  int64  `json:"p99_micros"`
	// A batch of n is expected to take InterceptMicros + n × SlopeMicros.
	InterceptMicros float64 `json:"intercept_micros"`
	SlopeMicros     float64 `json:"slope_micros"`
}

// FunctionStatus is a function as it stands.
type FunctionStatus struct {
	Spec FunctionSpec `json:"spec"`
	// Revision is the number of the spec's last change: see [ObjectRevision].
	Revision uint64 `json:"revision"`
	// Ready says whether a query would find a replica.
	Ready bool `json:"ready"`
	// Models are the versions that its candidates mean now.
	Models  []string  `json:"models,omitempty"`
	Created time.Time `json:"created,omitzero"`
	// Queries counts its queries by the name of their code, since the gateway started; Defaults those answered by the default.
	Queries    map[string]uint64 `json:"queries,omitempty"`
	Defaults   uint64            `json:"defaults"`
	Rate       RateStatus        `json:"rate"`
	Policy     *PolicyStatus     `json:"policy,omitempty"`
	Shadow     *ShadowStatus     `json:"shadow,omitempty"`
	Conditions []Condition       `json:"conditions,omitempty"`
}

// GatewayStatus is the gateway as it stands.
type GatewayStatus struct {
	Version   string    `json:"version"`
	GoVersion string    `json:"go_version"`
	PID       int       `json:"pid"`
	Started   time.Time `json:"started,omitzero"`
	// Listen and Admin are the addresses of the function port and of the admin port.
	Listen string `json:"listen"`
	Admin  string `json:"admin"`
	// DataDir is where specs are kept, empty when they are not.
	DataDir string `json:"data_dir,omitempty"`
	// Ready is what /readyz says, Draining that the gateway is stopping.
	Ready     bool `json:"ready"`
	Draining  bool `json:"draining"`
	Models    int  `json:"models"`
	Functions int  `json:"functions"`
	Replicas  int  `json:"replicas"`
	// Inflight is the number of queries that are being answered.
	Inflight int `json:"inflight"`
	// Cache is the prediction cache, missing when it is off, Store where what is learned is kept, missing when nowhere.
	Cache *CacheStatus `json:"cache,omitempty"`
	Store *StoreStatus `json:"store,omitempty"`
	// Node is what the machine has for replicas.
	Node *NodeStatus `json:"node,omitempty"`
	// Sources are where model versions come from, Revision the store's, as this gateway has it.
	Sources    []SourceStatus `json:"sources,omitempty"`
	Revision   uint64         `json:"revision,omitempty"`
	Conditions []Condition    `json:"conditions,omitempty"`
}

// LogLine is one line of a replica's output, or of what the gateway says about it.
type LogLine struct {
	Time    time.Time `json:"time"`
	Version string    `json:"version,omitempty"`
	Replica uint64    `json:"replica,omitempty"`
	// Stream is "stdout", "stderr", or "gateway" for what the gateway says of the replica.
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

// String is the line as people read it: when, which replica of which version, and the text.
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
	// KindTraffic is how a model's queries are divided between its versions; its name is the model's.
	KindTraffic Kind = "Traffic"
)

// Action is what applying a declaration did, or would do.
type Action string

// The actions.
const (
	Created   Action = "created"
	Updated   Action = "updated"
	Unchanged Action = "unchanged"
	Deleted   Action = "deleted"
)

// Change is what became of one object.
type Change struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Version is empty for all kinds but models.
	Version string `json:"version,omitempty"`
	Action  Action `json:"action"`
}

// ObjectRevision says at which change an object is. Each change of what is declared has a number, higher than all before it, and an
// object has that of its own last one. Whoever reads an object, edits it and declares it again sends the revision along that was read: the
// change is made only where the object is at it still. An object at revision 0 is not declared; that includes the default rules of a
// model's traffic, and what a watched directory declares.
type ObjectRevision struct {
	Kind Kind
	Name string
	// Version is empty for all kinds but models.
	Version  string
	Revision uint64
}

// StaleObject is an object that is not at the revision that was expected, as it is now.
type StaleObject struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Version is empty for all kinds but models.
	Version string `json:"version,omitempty"`
	// Revision is 0 where it is not declared (any more).
	Revision uint64 `json:"revision"`
	// Action, By and Time are what the history has of the change that was faster: they are missing where it has forgotten.
	Action string    `json:"action,omitempty"`
	By     string    `json:"by,omitempty"`
	Time   time.Time `json:"time,omitzero"`
}

// The answers of the admin API, as JSON.

// Changes answers apply, deploy and delete.
type Changes struct {
	Changes []Change `json:"changes"`
	// DryRun says that nothing was changed.
	DryRun bool `json:"dry_run,omitempty"`
}

// ModelList answers a question for models: every version is an element of its own.
type ModelList struct {
	Models []ModelStatus `json:"models"`
}

// FunctionList answers a question for functions.
type FunctionList struct {
	Functions []FunctionStatus `json:"functions"`
}

// ModelDescription is a model with what depends on it.
type ModelDescription struct {
	Models  []ModelStatus  `json:"models"`
	Traffic *TrafficStatus `json:"traffic,omitempty"`
	// Functions are those that name the model.
	Functions []FunctionStatus `json:"functions"`
}

// FunctionDescription is a function with what it depends on.
type FunctionDescription struct {
	Function FunctionStatus `json:"function"`
	// Models are the versions that answer it now.
	Models []ModelStatus `json:"models"`
}

// VersionInfo says which program answers.
type VersionInfo struct {
	Version   string `json:"version"`
	GoVersion string `json:"go_version"`
}

// ErrorBody is how every failed call to the admin API is answered.
type ErrorBody struct {
	Error ErrorInfo `json:"error"`
}

// ErrorInfo is the code's name and the message.
type ErrorInfo struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Problems are what the message says, one by one, where declarations were refused for what they declare.
	Problems []Problem `json:"problems,omitempty"`
	// Stale are the objects that somebody else has changed since the caller looked, where that is why nothing was changed: to read them
	// and try again may succeed. Of other conflicts there are none.
	Stale []StaleObject `json:"stale,omitempty"`
}

// Problem is one thing that is wrong in a declaration.
type Problem struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Version is empty for all kinds but models.
	Version string `json:"version,omitempty"`
	// Path is the field, as in [FieldError]; empty when it is about the whole object.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}
