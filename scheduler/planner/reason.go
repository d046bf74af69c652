package planner

// Reason says why a number of a plan is as it is.
type Reason uint8

const (
	// NoReason: there is nothing to explain.
	NoReason Reason = iota

	// Reasons for a function's candidates.

	// Best: all of the function's queries gain most here, and there is room.
	Best
	// Member: it takes part in every answer of the ensemble.
	Member
	// Fallback: it takes what better candidates have no room for.
	Fallback
	// NotNeeded: better candidates take everything.
	NotNeeded
	// Wished: it gets the part that the policy wishes.
	Wished
	// StandsIn: beyond what the policy wishes, it takes what others have no room for.
	StandsIn
	// Capacity: its replicas are full, and this is the function's share.
	Capacity
	// DeviceTime: the device that it shares is full, and this is the function's share.
	DeviceTime
	// Budget: the function's budget affords no more.
	Budget
	// Leftover: it gets what others leave over; the function is in the background.
	Leftover
	// NoGain: its gain is 0, and the function's budget goes to others.
	NoGain
	// NoSuchModel: the candidate names an absent model, or one without a replica while other candidates have one.
	NoSuchModel
	// NoCandidates: no candidate of the function is present.
	NoCandidates

	// Reasons for a model's execution.

	// Unknown: there is too little data of its replicas, so nothing is changed.
	Unknown
	// Pinned: its batches are of a fixed kind.
	Pinned
	// BatchesSave: a batch costs less than its queries one by one.
	BatchesSave
	// BatchesSaveNothing: a batch costs as much as its queries one by one, so each is sent by itself.
	BatchesSaveNothing
	// LargeInputs: the inputs are large and a batch saves little. The next input is copied while one is evaluated.
	LargeInputs
	// SideBySide: replicas idle, and two halves of a batch on two of them finish before a whole one.
	SideBySide
	// Relearning: for one epoch batches are formed again, to see whether they still save nothing.
	Relearning

	// Reasons for a model's holds.

	// NotConfigured: no hold is configured.
	NotConfigured
	// AsConfigured: the configured hold pays.
	AsConfigured
	// TooFew: less than one more query is expected within the hold.
	TooFew
	// Knee: a shorter hold gathers the batch at the knee, whose fixed cost is half.
	Knee

	// Reasons for a model's caps.

	// NoBound: the controllers' caps apply.
	NoBound
	// Neighbours: a larger batch would delay another tenant of the device for too long.
	Neighbours
	// TightObjective: some replicas serve the functions with the shortest objectives.
	TightObjective

	reasons // their number
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
	NoCandidates:       "no candidate is available",
	Unknown:            "too little data from the replicas",
	Pinned:             "batches of a fixed kind",
	BatchesSave:        "batches save time",
	BatchesSaveNothing: "batches save nothing",
	LargeInputs:        "large inputs, and batches save little",
	SideBySide:         "idle replicas evaluate the halves of a batch sooner",
	Relearning:         "one epoch of batches, to measure what they cost",
	NotConfigured:      "no hold is configured",
	AsConfigured:       "as configured",
	TooFew:             "less than one more query is expected",
	Knee:               "long enough for the fixed cost to be half",
	NoBound:            "what the controllers allow",
	Neighbours:         "a larger batch would delay other models on the device",
	TightObjective:     "some replicas are reserved for the shortest objectives",
}

// String returns the reason as text for operators.
func (r Reason) String() string {
	if r >= reasons {
		return "unknown"
	}
	return reasonTexts[r]
}
