package api

import (
	"encoding/base64"
	"fmt"
	"time"
	"unicode/utf8"
)

// LearnedStateVersion is the version of the form of [LearnedState]. A gateway reads no other.
const LearnedStateVersion = 1

// LearnedState is what a function's policy has learned, in the form in which it is exported and imported. The same state is always the same text.
type LearnedState struct {
	// Version is LearnedStateVersion.
	Version int `json:"version"`
	// Function is where it was learned; it may be imported into a function of another name.
	Function string `json:"function"`
	// Policy is the function's policy. It is imported only into a function with a policy of the same name; parameters may differ.
	Policy PolicySpec `json:"policy"`
	// Candidates are the function's models, as declared.
	Candidates []string `json:"candidates"`
	// All says that States has every context. When they are imported, other contexts begin again.
	All bool `json:"all"`
	// Value is what a policy keeps beside numbers for its candidates, such as linucb and stacking. It belongs to the global state, and is missing
	// where that is. Only the policy understands it; it is checked when it is imported.
	Value []byte `json:"value,omitempty"`
	// States are ordered by context.
	States []LearnedContext `json:"states"`
}

// LearnedContext is the state of one context.
type LearnedContext struct {
	// Context is empty for the global state. A context that is not UTF-8 is in ContextBase64 instead.
	Context       string `json:"context,omitempty"`
	ContextBase64 string `json:"context_base64,omitempty"`
	// Rows are in the order of the candidates.
	Rows []LearnedRow `json:"rows"`
}

// LearnedRow is what is known about one candidate.
type LearnedRow struct {
	Candidate string `json:"candidate"`
	// Count is the number of losses that it has received, as far as the policy remembers them, and LossSum their sum.
	Count   float64 `json:"count"`
	LossSum float64 `json:"loss_sum"`
	// Own are the numbers that only the policy understands.
	Own []float64 `json:"own"`
}

// SetContext sets the context to any bytes.
func (c *LearnedContext) SetContext(context string) {
	c.Context, c.ContextBase64 = context, ""
	if !utf8.ValidString(context) {
		c.Context, c.ContextBase64 = "", base64.StdEncoding.EncodeToString([]byte(context))
	}
}

// ContextBytes returns the context.
func (c *LearnedContext) ContextBytes() (string, error) {
	if c.ContextBase64 == "" {
		return c.Context, nil
	}
	if c.Context != "" {
		return "", fmt.Errorf("the state of context %q has a context_base64, too: expected one of the two", c.Context)
	}
	b, err := base64.StdEncoding.DecodeString(c.ContextBase64)
	if err != nil {
		return "", fmt.Errorf("context_base64 %.60q: expected base64: %w", c.ContextBase64, err)
	}
	return string(b), nil
}

// LearnedSelection says which of a function's states are meant. The zero value means the global one.
type LearnedSelection struct {
	// Context is the only context meant; empty: none.
	Context string
	// All means the global state and that of every context.
	All bool
}

// LearnedChange is the result of an import or a reset.
type LearnedChange struct {
	Function string `json:"function"`
	// States is how many states were replaced. In a dry run it is how many a file has.
	States int `json:"states"`
	// DryRun means that nothing was changed.
	DryRun bool `json:"dry_run,omitempty"`
	// Notes say what a caller may not expect, such as parameters that differ.
	Notes []string `json:"notes,omitempty"`
}

// LearnedHistory is how what a function has learned, over all contexts, has changed.
type LearnedHistory struct {
	Function string `json:"function"`
	// Samples are ordered by time. The last one is the present.
	Samples []LearnedSample `json:"samples"`
}

// LearnedSample is what was known at one time.
type LearnedSample struct {
	Time time.Time `json:"time"`
	// Reason is LearnedHourly, LearnedCandidates, LearnedImport, LearnedReset or LearnedNow.
	Reason string `json:"reason"`
	// By names the caller of an import or a reset.
	By     string `json:"by,omitempty"`
	Policy string `json:"policy"`
	// Candidates are those of that time.
	Candidates []CandidateLearning `json:"candidates"`
}

// Why a sample was taken.
const (
	// LearnedHourly: once in each hour in which something was learned.
	LearnedHourly = "hour"
	// LearnedCandidates: the function had other candidates or another policy than before.
	LearnedCandidates = "candidates"
	// LearnedImport and LearnedReset: after one of these.
	LearnedImport = "import"
	LearnedReset  = "reset"
	// LearnedNow: it is the present, and is not stored.
	LearnedNow = "now"
)

// MaxLearnedSamples is how many samples are kept of a function: thirty days of hours, and 280 others. The oldest are dropped.
const MaxLearnedSamples = 1000 //xebec:limit samples in `learn history`; the oldest are dropped
