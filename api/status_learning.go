package api

import "time"

// PolicyStatus is what a function's policy does, and what it has learned from feedback. No number is infinite or NaN. Counts
// are since the gateway started, but for those of candidates, which are as old as what is learned.
type PolicyStatus struct {
	Name string     `json:"name"`
	Mode PolicyMode `json:"mode"`
	// Learns says whether feedback changes anything.
	Learns bool `json:"learns"`
	// Candidates are those of the declaration, in its order, over all contexts; Contexts are some of those in memory.
	Candidates []CandidateLearning `json:"candidates"`
	Contexts   []ContextStatus     `json:"contexts,omitempty"`
	// ContextsInMemory is how many there are, of this function.
	ContextsInMemory int64 `json:"contexts_in_memory"`
	// Late counts predictions of several that had not come when their answer was due, Dropped those that the plan had no room for.
	Late     uint64         `json:"late"`
	Dropped  uint64         `json:"dropped"`
	Feedback FeedbackStatus `json:"feedback"`
	// Store is where what is learned is kept; missing: nowhere.
	Store *StoreStatus `json:"store,omitempty"`
}

// PolicyMode says how many candidates a policy asks for one query.
type PolicyMode string

// The modes.
const (
	// PolicyAsksOne: one candidate answers each query.
	PolicyAsksOne PolicyMode = "one"
	// PolicyAsksSeveral: several are asked, and their answers combined.
	PolicyAsksSeveral PolicyMode = "several"
)

// MaxStatusContexts is how many contexts a function's status shows.
const MaxStatusContexts = 20

// CandidateLearning is what is known of one candidate, in one context or over all.
type CandidateLearning struct {
	// Ref is the candidate as the declaration names it, Model the version that it means now, empty when there is none.
	Ref   string `json:"ref"`
	Model string `json:"model,omitempty"`
	// Share is the part of the queries that ask it, Weight what its answer counts against the others'.
	Share  float64 `json:"share"`
	Weight float64 `json:"weight"`
	// Count is how many losses it was told, MeanLoss their mean, 0 while there are none.
	Count    float64 `json:"count"`
	MeanLoss float64 `json:"mean_loss"`
	// Mean is the running average of its predictions, where they are numbers, which stands in for one that is late.
	Mean []float64 `json:"mean,omitempty"`
}

// ContextStatus is what a policy has learned for one context.
type ContextStatus struct {
	Context    string              `json:"context"`
	Candidates []CandidateLearning `json:"candidates"`
}

// FeedbackStatus counts feedback by what became of it.
type FeedbackStatus struct {
	Counted uint64 `json:"counted"`
	// Duplicate was about a query that had its feedback, Late about one that is no longer remembered, Unknown about one that
	// this gateway has not answered.
	Duplicate uint64 `json:"duplicate"`
	Late      uint64 `json:"late"`
	Unknown   uint64 `json:"unknown"`
	// Refused was malformed, of a wrong type, or more than could wait; Nothing was in order and says nothing of any candidate.
	Refused uint64 `json:"refused"`
	Nothing uint64 `json:"nothing"`
	// Asked counts models that were asked for the sake of feedback, Taught labels that were handed to models.
	Asked  uint64 `json:"asked"`
	Taught uint64 `json:"taught"`
}

// StoreStatus is the store of what all functions learn.
type StoreStatus struct {
	// Name says where it is, without passwords, Shared whether other gateways may use it too.
	Name   string `json:"name"`
	Shared bool   `json:"shared"`
	// Away says that the last call failed.
	Away bool `json:"away"`
	// Pending is how many states have updates that the store has not confirmed, Lost how many updates will never be written,
	// for too many waited.
	Pending     int64     `json:"pending"`
	Lost        int64     `json:"lost"`
	LastSuccess time.Time `json:"last_success,omitzero"`
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// ShadowStatus is how the answers of a function's shadow models compare with those that were given.
type ShadowStatus struct {
	Models []ShadowModelStatus `json:"models"`
	// Same agreed with the answer, Different did not; Failed did not come, Dropped had no room in the plan.
	Same      uint64 `json:"same"`
	Different uint64 `json:"different"`
	Failed    uint64 `json:"failed"`
	Dropped   uint64 `json:"dropped"`
}

// ShadowModelStatus is one shadow model.
type ShadowModelStatus struct {
	// Ref is the model as the declaration names it, Model the version that it means now, empty when there is none.
	Ref   string `json:"ref"`
	Model string `json:"model,omitempty"`
	// Part is the part of the queries that it is asked for.
	Part float64 `json:"part"`
}

// ModelCacheStatus is how the prediction cache serves a model version.
type ModelCacheStatus struct {
	// On says whether it is used: the model lets it, and the gateway has one.
	On        bool   `json:"on"`
	Hits      uint64 `json:"hits"`
	Misses    uint64 `json:"misses"`
	Coalesced uint64 `json:"coalesced"`
	// Bypassed counts queries that the cache had no room to remember.
	Bypassed uint64 `json:"bypassed"`
}

// CacheStatus is the gateway's prediction cache, which all models share.
type CacheStatus struct {
	// Entries can be hit, Pending are being evaluated.
	Entries int `json:"entries"`
	Pending int `json:"pending"`
	// Bytes is what both take, HeldBytes the memory that was taken so far; neither passes MaxBytes.
	Bytes     int64 `json:"bytes"`
	HeldBytes int64 `json:"held_bytes"`
	MaxBytes  int64 `json:"max_bytes"`
	// Evicted made room for others. Collisions are look-ups that found another input under the same key.
	Evicted    uint64 `json:"evicted"`
	Collisions uint64 `json:"collisions"`
}
