package selection

// Needs says what a policy wants to see of queries, beyond its state. The caller prepares that and nothing else, so a
// policy that needs nothing costs nothing. The last of the three also costs memory: what feedback is about must be
// remembered until the feedback comes.
type Needs struct {
	// Inputs asks for the typed inputs and the context of each query, in Select, Combine and Observe.
	Inputs bool
	// Predictions asks for the candidates' outputs with their confidences and latencies, in Combine and Observe.
	Predictions bool
	// Labels asks for the label, in Observe.
	Labels bool
}

// NeedsOf returns what a policy needs: the result of its method Needs, or nothing if it has none.
func NeedsOf(p Policy) Needs {
	if n, ok := p.(interface{ Needs() Needs }); ok {
		return n.Needs()
	}
	return Needs{}
}

// MaxValueBytes bounds the encoding of a value. The value is written whole when it has changed, at most once a flush.
const MaxValueBytes = 1 << 20 //xebec:limit encoded value of a policy with a state of its own, such as `linucb` or `stacking`

// Valuer is a policy whose knowledge is a value of its own. It has the additive rows of every policy as well; their
// losses are what reports and the plan read.
type Valuer interface {
	Policy
	// NewValue returns the value of a function with that many candidates, about which nothing is known.
	NewValue(candidates int) Value
}

// NewValue returns the initial value of a policy, or nil if the policy is not a Valuer.
func NewValue(p Policy, candidates int) Value {
	if v, ok := p.(Valuer); ok {
		return v.NewValue(candidates)
	}
	return nil
}

// Value is what a policy has learned about a function. There is one for each function: a policy that learns for each
// context keeps the contexts in its value, or sees them as inputs. The caller locks it.
//
// A value that is also a [Merger] may be changed by several gateways at once. Otherwise one gateway at a time changes
// it and the others follow.
type Value interface {
	// AppendBinary appends the encoding, of at most MaxValueBytes.
	AppendBinary(b []byte) ([]byte, error)
	// UnmarshalBinary replaces the value by a decoded one, of the same number of candidates. The data may come from
	// another version of the program, with other parameters, or be damaged: an error leaves the value as it was.
	UnmarshalBinary(b []byte) error
	// Adopt fills a new value from that of the same policy for other candidates: candidate i takes over what is known
	// of old's candidate from[i], or starts from nothing if that is -1.
	Adopt(old Value, from []int)
}

// Merger is a Value that can be combined with changes from elsewhere.
type Merger interface {
	Value
	// Merge adds what theirs has learned since base. All three have the same candidates.
	Merge(base, theirs Value)
}
