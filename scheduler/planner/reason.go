package planner

// Reason says what a number of a plan follows from.
type Reason uint8

const (
	// NoReason: there is nothing to explain.
	NoReason Reason = iota

	// Of a function's candidates.

	// Best: all of the function's queries are worth most here, and there is room.
	Best
	// Member: it takes part in every answer of the ensemble.
	Member
	// Fallback: it takes what better candidates have no room for.
	Fallback
	// NotNeeded: better candidates take everything.
	NotNeeded
	// Wished: the part that the policy wishes.
	Wished
	// StandsIn: beyond what the policy wishes, it takes what others have no room for.
	StandsIn
	// Capacity: its replicas can do no more, and this is the function's share.
	Capacity
	// DeviceTime: the device that it shares has no more time, and this is the function's share.
	DeviceTime
	// Budget: the function's budget affords no more.
	Budget
	// Leftover: what others leave over; the function is in the background.
	Leftover
	// NoGain: its answers are worth nothing, and the function's budget is for others.
	NoGain
	// NoSuchModel: the candidate names a model that is not there, or one without a replica while others have one.
	NoSuchModel
	// NoCandidates: the function has no candidate that is there.
	NoCandidates

	// Of a model's execution.

	// Unknown: too little has been seen of its replicas, so nothing is changed.
	Unknown
	// Pinned: its batches are of a fixed kind.
	Pinned
	// BatchesSave: a batch costs less than its queries one by one.
	BatchesSave
	// BatchesSaveNothing: a batch costs as much as its queries one by one, so each is sent by itself.
	BatchesSaveNothing
	// LargeInputs: the inputs are large, and a batch saves little: the next is copied while one is evaluated.
	LargeInputs
	// SideBySide: replicas idle, and half a batch on two of them is done sooner than a whole one.
	SideBySide
	// Relearning: for one epoch batches are formed again, to see whether they still save nothing.
	Relearning

	// Of a model's holds.

	// NotConfigured: no hold is configured.
	NotConfigured
	// AsConfigured: the configured hold pays.
	AsConfigured
	// TooFew: less than one more query is expected within the hold.
	TooFew
	// Knee: a shorter hold gathers the batch whose fixed cost equals the rest.
	Knee

	// Of a model's caps.

	// NoBound: what the controllers allow.
	NoBound
	// Neighbours: a larger batch would hold up another tenant of the device for too long.
	Neighbours
	// TightObjective: some replicas serve the functions with the shortest objectives.
	TightObjective

	reasons // how many there are
)

var reasonTexts = [reasons]string{
	NoReason:           "",
	Best:               "the largest gain, and there is room",
	Member:             "a member of every answer",
	Fallback:           "takes what better candidates have no room for",
	NotNeeded:          "better candidates take everything",
	Wished:             "as the policy wishes",
	StandsIn:           "takes what others have no room for",
	Capacity:           "its share of what the replicas can do",
	DeviceTime:         "its share of the device's time",
	Budget:             "what the budget affords",
	Leftover:           "what other functions leave over",
	NoGain:             "no gain, and the budget is for others",
	NoSuchModel:        "it has no replica",
	NoCandidates:       "no candidate is there",
	Unknown:            "too little is known of the replicas",
	Pinned:             "batches of a fixed kind",
	BatchesSave:        "batches save time",
	BatchesSaveNothing: "batches save nothing",
	LargeInputs:        "large inputs, and batches save little",
	SideBySide:         "replicas idle, and side by side is sooner",
	Relearning:         "one epoch of batches, to see what they cost",
	NotConfigured:      "no hold is configured",
	AsConfigured:       "as configured",
	TooFew:             "less than one more query would come",
	Knee:               "long enough for the fixed cost to be half",
	NoBound:            "what the controllers allow",
	Neighbours:         "other models on the device wait no longer than they can",
	TightObjective:     "some replicas are for the shortest objectives",
}

// String says it for people.
func (r Reason) String() string {
	if r >= reasons {
		return "unknown"
	}
	return reasonTexts[r]
}
