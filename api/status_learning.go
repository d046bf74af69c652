package api

import "time"

// PolicyStatus is what a function's policy does and has learned from feedback. No number is infinite or NaN. Counts are
// since the gateway started, except for those of candidates, which are as old as the learned state.
type PolicyStatus struct {
	Name string     `json:"name"`
	Mode PolicyMode `json:"mode"`
	// Learns says whether feedback changes anything.
	Learns bool `json:"learns"`
	// Candidates are the declared candidates in their order, over all contexts. Contexts are some of the contexts in
	// memory.
	Candidates []CandidateLearning `json:"candidates"`
	Contexts   []ContextStatus     `json:"contexts,omitempty"`
	// ContextsInMemory is the number of this function's contexts in memory.
	ContextsInMemory int64 `json:"contexts_in_memory"`
	// Late counts predictions that were not ready when a combined answer was due. Dropped counts those that the plan
	// had no room for.
	Late     uint64         `json:"late"`
	Dropped  uint64         `json:"dropped"`
	Feedback FeedbackStatus `json:"feedback"`
	// Store is the store of learned state; missing if there is none.
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

// MaxStatusContexts is the number of contexts that a function's status shows.
const MaxStatusContexts = 20 //xebec:limit contexts that `describe function` shows

// CandidateLearning is the learned state of one candidate, in one context or over all.
type CandidateLearning struct {
	// Ref is the candidate as declared. Model is the version that it currently means, empty if there is none.
	Ref   string `json:"ref"`
	Model string `json:"model,omitempty"`
	// Share is the part of the queries that ask it. Weight is the weight of its answer among the candidates'.
	Share  float64 `json:"share"`
	Weight float64 `json:"weight"`
	// Count is the number of losses that it has received, MeanLoss their mean, 0 while there are none.
	Count    float64 `json:"count"`
	MeanLoss float64 `json:"mean_loss"`
	// Mean is the running average of its predictions if they are numbers. It replaces a prediction that is late.
	Mean []float64 `json:"mean,omitempty"`
	// Late counts its predictions that an answer did without, because they had failed or were not there at the deadline. It is 0 in a context.
	Late uint64 `json:"late,omitempty"`
}

// ContextStatus is what a policy has learned for one context.
type ContextStatus struct {
	Context    string              `json:"context"`
	Candidates []CandidateLearning `json:"candidates"`
}

// FeedbackStatus counts feedback by outcome.
type FeedbackStatus struct {
	Counted uint64 `json:"counted"`
	// InPart counted with their losses only: the policy no longer had the input or the predictions.
	InPart uint64 `json:"counted_in_part,omitempty"`
	// Duplicate was for a query that already had feedback, Late for a query that is no longer remembered, Unknown for a
	// query that this gateway has not answered.
	Duplicate uint64 `json:"duplicate"`
	Late      uint64 `json:"late"`
	Unknown   uint64 `json:"unknown"`
	// Refused was malformed, of a wrong type, or above the limit of waiting feedback. Nothing was valid but says
	// nothing about any candidate.
	Refused uint64 `json:"refused"`
	Nothing uint64 `json:"nothing"`
	// Asked counts models that were asked because of feedback, Taught labels that were passed to models.
	Asked  uint64 `json:"asked"`
	Taught uint64 `json:"taught"`
}

// StoreStatus is the store of learned state of all functions.
type StoreStatus struct {
	// Name is its address without passwords. Shared says whether other gateways may use it too.
	Name   string `json:"name"`
	Shared bool   `json:"shared"`
	// Away says that the last call failed.
	Away bool `json:"away"`
	// Pending is the number of states with updates that the store has not confirmed. Lost is the number of updates that
	// will never be written, because too many waited.
	Pending     int64     `json:"pending"`
	Lost        int64     `json:"lost"`
	LastSuccess time.Time `json:"last_success,omitzero"`
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// ShadowStatus compares the answers of a function's shadow models with the answers that were given.
type ShadowStatus struct {
	Models []ShadowModelStatus `json:"models"`
	// Same counts answers that agreed, Different those that did not, Failed those that did not come, Dropped those that
	// the plan had no room for.
	Same      uint64 `json:"same"`
	Different uint64 `json:"different"`
	Failed    uint64 `json:"failed"`
	Dropped   uint64 `json:"dropped"`
}

// ShadowModelStatus is one shadow model.
type ShadowModelStatus struct {
	// Ref is the model as declared. Model is the version that it currently means, empty if there is none.
	Ref   string `json:"ref"`
	Model string `json:"model,omitempty"`
	// Part is the part of the queries that it also evaluates.
	Part float64 `json:"part"`
}

// ModelCacheStatus is the prediction cache's figures for a model version.
type ModelCacheStatus struct {
	// On says whether the cache is used: the model permits it and the gateway has one.
	On        bool   `json:"on"`
	Hits      uint64 `json:"hits"`
	Misses    uint64 `json:"misses"`
	Coalesced uint64 `json:"coalesced"`
	// Bypassed counts queries that the cache had no room to store.
	Bypassed uint64 `json:"bypassed"`
}

// CacheStatus is the gateway's prediction cache, which all models share.
type CacheStatus struct {
	// Entries can be hit. Pending ones are being evaluated.
	Entries int `json:"entries"`
	Pending int `json:"pending"`
	// Bytes is the size of both, HeldBytes the memory allocated so far. Neither exceeds MaxBytes.
	Bytes     int64 `json:"bytes"`
	HeldBytes int64 `json:"held_bytes"`
	MaxBytes  int64 `json:"max_bytes"`
	// Evicted counts entries that made room for others. Collisions counts look-ups that found another input under the
	// same key.
	Evicted    uint64 `json:"evicted"`
	Collisions uint64 `json:"collisions"`
}
