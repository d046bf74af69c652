package tensorjson

import "github.com/xebec-serving/xebec/api"

// FeedbackMembers is a set of members of a feedback item.
type FeedbackMembers uint8

// Members of a feedback item. It has exactly one of the first two, which name the prediction, and exactly one of the
// next three, which rate it.
const (
	FeedbackQueryID FeedbackMembers = 1 << iota
	FeedbackInput
	FeedbackLabel
	FeedbackCorrect
	FeedbackLoss
	FeedbackContext

	feedbackNames    = FeedbackQueryID | FeedbackInput
	feedbackVerdicts = FeedbackLabel | FeedbackCorrect | FeedbackLoss
)

// FeedbackItem is feedback on one prediction. Slices alias the body or the request's own buffer.
type FeedbackItem struct {
	Has FeedbackMembers
	// QueryID names the prediction. Input is the index of the item's input among those that the sink returned, from 0.
	QueryID uint64
	Input   int
	// Label is the right answer, as JSON text; [Feedback.ParseLabel] parses it.
	Label []byte
	// Correct says whether the answer was right. Loss, from 0 to 1, says how wrong it was.
	Correct bool
	Loss    float64
	// Context is the string "context", or Clipper's "uid": a string, or an integer's decimal digits.
	Context []byte

	labelAt int
}

// Feedback is a native feedback request: the members of one item, or {"feedback_batch": [{…}, …]}. Slices are valid
// until the next Parse, and no longer than the body. A Feedback is reused for many bodies and is not safe for
// concurrent use.
type Feedback struct {
	// Batch means that the request was a feedback_batch and is answered as one, however many items it has.
	Batch bool
	// Items has at least one element.
	Items []FeedbackItem

	r          Reader
	inputs     []api.TensorSpec
	sink       Sink
	inputCount int // number of inputs that the sink has returned
	maxItems   int
}

// Parse parses a body of at most maxItems items. Inputs are declared by specs and written to storage from sink, as in
// [Request.Parse]. Labels are only checked to be JSON, because their specs are not known yet. After an error, which is
// an *api.Error with code InvalidArgument or the sink's, the result is not valid, and the caller reclaims what the sink
// has returned.
func (f *Feedback) Parse(body []byte, inputs []api.TensorSpec, sink Sink, maxItems int) error {
	if len(inputs) > MaxInputs {
		return api.Errorf(api.Internal, "the signature declares %d inputs: expected at most %d", len(inputs), MaxInputs)
	}
	r := &f.r
	r.Reset(body)
	f.Batch, f.Items, f.inputCount = false, f.Items[:0], 0
	f.inputs, f.sink, f.maxItems = inputs, sink, maxItems
	err := f.parseObject()
	f.inputs, f.sink = nil, nil
	if err != nil {
		return err
	}
	return r.End()
}

// parseObject parses the request's object, which is a feedback item itself unless it has a batch of them.
func (f *Feedback) parseObject() error {
	r := &f.r
	var it FeedbackItem
	err := r.Members(func(name []byte) error {
		if string(name) == "feedback_batch" {
			if f.Batch {
				return r.Errorf("duplicate member %q", name)
			}
			r.Push("feedback_batch")
			if err := f.batch(); err != nil {
				return err
			}
			r.Pop()
		} else if err := f.member(&it, name); err != nil {
			return err
		}
		if f.Batch && it.Has != 0 {
			return r.Errorf("expected \"feedback_batch\" or the members of one feedback, found both")
		}
		return nil
	})
	if err != nil || f.Batch {
		return err
	}
	return f.add(&it)
}

func (f *Feedback) batch() error {
	f.Batch = true
	if err := f.r.Elements(f.item); err != nil {
		return err
	}
	if len(f.Items) == 0 {
		return f.r.Errorf("expected at least one feedback, found an empty array")
	}
	return nil
}

func (f *Feedback) item(i int) error {
	if i == f.maxItems {
		return f.r.Errorf("more than %d feedback items in one request: split it", f.maxItems)
	}
	var it FeedbackItem
	if err := f.r.Members(func(name []byte) error { return f.member(&it, name) }); err != nil {
		return err
	}
	return f.add(&it)
}

// add appends an item that has one name and one rating.
func (f *Feedback) add(it *FeedbackItem) error {
	switch it.Has & feedbackNames {
	case FeedbackQueryID, FeedbackInput:
	case 0:
		return f.r.Errorf("expected a member \"query_id\" or \"input\": which prediction is it about?")
	default:
		return f.r.Errorf("expected one of \"query_id\" and \"input\", found both")
	}
	switch it.Has & feedbackVerdicts {
	case FeedbackLabel, FeedbackCorrect, FeedbackLoss:
	case 0:
		return f.r.Errorf("expected a member \"label\", \"correct\" or \"loss\": how good was the prediction?")
	default:
		return f.r.Errorf("expected one of \"label\", \"correct\" and \"loss\", found several")
	}
	f.Items = append(f.Items, *it)
	return nil
}

func (f *Feedback) member(it *FeedbackItem, name []byte) (err error) {
	var present bool
	r := &f.r
	switch string(name) {
	case "query_id":
		if present, err = f.beginMember(it, "query_id", FeedbackQueryID); present {
			it.QueryID, err = r.uint64()
		}
	case "input":
		if present, err = f.beginMember(it, "input", FeedbackInput); present {
			err = f.input(it)
		}
	case "label":
		if present, err = f.beginMember(it, "label", FeedbackLabel); present {
			r.Peek()
			it.labelAt = r.pos
			err = r.Skip()
			it.Label = r.body[it.labelAt:r.pos:r.pos]
		}
	case "correct":
		if present, err = f.beginMember(it, "correct", FeedbackCorrect); present {
			it.Correct, err = r.Bool()
		}
	case "loss":
		if present, err = f.beginMember(it, "loss", FeedbackLoss); present {
			if it.Loss, err = r.Float64(); err == nil && !(it.Loss >= 0 && it.Loss <= 1) {
				err = r.Errorf("expected a number from 0 to 1, found %v", it.Loss)
			}
		}
	case "context":
		if present, err = f.beginMember(it, "context", FeedbackContext); present {
			it.Context, err = r.String()
		}
	case "uid":
		if present, err = f.beginMember(it, "uid", FeedbackContext); present {
			it.Context, err = r.StringOrInteger()
		}
	default:
		return r.Skip()
	}
	if present && err == nil {
		r.Pop()
	}
	return err
}

// beginMember starts a member. null counts as absent, and a duplicate is an error, under any of its names.
func (f *Feedback) beginMember(it *FeedbackItem, name string, bit FeedbackMembers) (present bool, err error) {
	f.r.Push(name)
	if it.Has&bit != 0 {
		return false, f.r.Errorf("duplicate member")
	}
	if f.r.Null() {
		f.r.Pop()
		return false, nil
	}
	it.Has |= bit
	return true, nil
}

func (f *Feedback) input(it *FeedbackItem) error {
	values, err := f.sink.Next()
	if err != nil {
		return err
	}
	if len(values) != len(f.inputs) {
		return api.Errorf(api.Internal, "storage for %d inputs: expected %d", len(values), len(f.inputs))
	}
	it.Input = f.inputCount
	f.inputCount++
	if len(f.inputs) == 1 {
		return f.r.Value(&values[0], &f.inputs[0])
	}
	return f.r.query(values, f.inputs)
}

// ParseLabel parses the label of item i, which must have one, into values: one for each output, whose Data and Dims are
// overwritten. A label has the JSON form of an answer's output, as [AppendValue] writes it (BYTES as {"b64": "…"}). The label
// of several outputs is an object from name to value, with all of them or, if only is not -1, with at least the output of that
// index: the values of outputs that it lacks are then not valid. The error is an *api.Error with code
// InvalidArgument.
func (f *Feedback) ParseLabel(i int, outputs []api.TensorSpec, only int, values []api.Value) error {
	if len(values) != len(outputs) || len(outputs) > MaxInputs {
		return api.Errorf(api.Internal, "storage for %d outputs: expected %d", len(values), len(outputs))
	}
	r := &f.r
	r.depth, r.pos = 0, f.Items[i].labelAt
	if f.Batch {
		r.Push("feedback_batch")
		r.PushIndex(i)
	}
	r.Push("label")
	r.onlyB64 = true
	var err error
	if len(outputs) == 1 {
		err = r.Value(&values[0], &outputs[0])
	} else {
		err = r.part(values, outputs, "output", only)
	}
	r.onlyB64 = false
	return err
}
