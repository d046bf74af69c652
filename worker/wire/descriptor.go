package wire

import (
	"encoding/binary"
	"fmt"
)

// DescriptorBytes is the size of a request and of a response. The offset of every block and section is a multiple of
// BlockAlign.
const (
	DescriptorBytes = 64
	BlockAlign      = 64
)

// Kind is what a request asks for.
type Kind uint16

// The kinds. GRANT and DISCARD answer a NEED_MORE. Their responses name the kind of the batch.
const (
	KindPredict  Kind = 1
	KindFeedback Kind = 2
	KindAccuracy Kind = 3
	KindGrant    Kind = 4
	KindDiscard  Kind = 5
)

// String is the kind's name in the specification.
func (k Kind) String() string {
	switch k {
	case KindPredict:
		return "PREDICT"
	case KindFeedback:
		return "FEEDBACK"
	case KindAccuracy:
		return "ACCURACY"
	case KindGrant:
		return "GRANT"
	case KindDiscard:
		return "DISCARD"
	}
	return fmt.Sprintf("kind %d", uint16(k))
}

// Status is how the worker ended a batch.
type Status uint16

// The statuses.
const (
	StatusOK          Status = 0
	StatusModelError  Status = 1
	StatusBadOutput   Status = 2
	StatusNeedMore    Status = 3
	StatusUnsupported Status = 4
	StatusMore        Status = 5 // version 2: a stream goes on
)

// String is the status's name in the specification.
func (s Status) String() string {
	switch s {
	case StatusOK:
		return "OK"
	case StatusModelError:
		return "MODEL_ERROR"
	case StatusBadOutput:
		return "BAD_OUTPUT"
	case StatusNeedMore:
		return "NEED_MORE"
	case StatusUnsupported:
		return "UNSUPPORTED"
	case StatusMore:
		return "MORE"
	}
	return fmt.Sprintf("status %d", uint16(s))
}

// Flags of a response: which sections follow the outputs. FlagStatuses is of version 2.
const (
	FlagConfidences uint32 = 1 << 0
	FlagStatuses    uint32 = 1 << 1

	knownFlags = FlagConfidences | FlagStatuses
)

// ItemStatus is how the worker ended one query of a batch that is OK: a number of the section of statuses.
type ItemStatus uint16

// The statuses of queries.
const (
	ItemOK           ItemStatus = 0
	ItemInvalidInput ItemStatus = 1 // the caller's mistake, and the text is for the caller
	ItemModelError   ItemStatus = 2
)

// MaxStreamOutputs is how many outputs of a stream one response may have.
const MaxStreamOutputs = 256 //xebec:limit outputs of a stream in one message of its worker

// Request is the gateway's descriptor of one batch.
type Request struct {
	Batch                        uint64
	Generation                   uint32
	Kind                         Kind
	Count                        uint32
	InOff, InLen, OutOff, OutCap uint64
	BudgetMicros                 uint32
}

// Put writes the descriptor.
func (r *Request) Put(d *[DescriptorBytes]byte) {
	le := binary.LittleEndian
	le.PutUint64(d[0:], r.Batch)
	le.PutUint32(d[8:], r.Generation)
	le.PutUint16(d[12:], uint16(r.Kind))
	le.PutUint16(d[14:], 0)
	le.PutUint32(d[16:], r.Count)
	le.PutUint32(d[20:], 0)
	le.PutUint64(d[24:], r.InOff)
	le.PutUint64(d[32:], r.InLen)
	le.PutUint64(d[40:], r.OutOff)
	le.PutUint64(d[48:], r.OutCap)
	le.PutUint32(d[56:], r.BudgetMicros)
	le.PutUint32(d[60:], 0)
}

// Get reads a descriptor, which must be a private copy. It checks what can be checked without the connection's state:
// reserved fields, the kind, whether the kind has queries, alignment. The caller checks bounds.
func (r *Request) Get(d *[DescriptorBytes]byte) error {
	le := binary.LittleEndian
	*r = Request{
		Batch: le.Uint64(d[0:]), Generation: le.Uint32(d[8:]), Kind: Kind(le.Uint16(d[12:])), Count: le.Uint32(d[16:]),
		InOff: le.Uint64(d[24:]), InLen: le.Uint64(d[32:]), OutOff: le.Uint64(d[40:]), OutCap: le.Uint64(d[48:]),
		BudgetMicros: le.Uint32(d[56:]),
	}
	switch {
	case le.Uint16(d[14:]) != 0 || le.Uint32(d[20:]) != 0 || le.Uint32(d[60:]) != 0:
		return fmt.Errorf("%w: request of batch %d: a reserved field is not 0", ErrMalformed, r.Batch)
	case r.Kind < KindPredict || r.Kind > KindDiscard:
		return fmt.Errorf("%w: request of batch %d: unknown %v", ErrMalformed, r.Batch, r.Kind)
	case (r.Count == 0) != (r.Kind == KindAccuracy || r.Kind == KindDiscard):
		return fmt.Errorf("%w: %v of batch %d has a count of %d", ErrMalformed, r.Kind, r.Batch, r.Count)
	case (r.InOff|r.OutOff)%BlockAlign != 0:
		return fmt.Errorf("%w: %v of batch %d: block offsets %d and %d, expected multiples of %d", ErrMalformed, r.Kind, r.Batch, r.InOff, r.OutOff, BlockAlign)
	}
	return nil
}

// Append appends a REQUEST frame, for connections without rings.
func (r *Request) Append(dst []byte) []byte {
	var d [DescriptorBytes]byte
	r.Put(&d)
	dst, start := beginFrame(dst, TypeRequest)
	return endFrame(append(dst, d[:]...), start)
}

// Decode reads the payload of a REQUEST frame.
func (r *Request) Decode(payload []byte) error {
	d, err := descriptorOf(TypeRequest, payload)
	if err != nil {
		return err
	}
	return r.Get(&d)
}

// Response is the worker's answer to one request.
type Response struct {
	Batch                           uint64
	Generation                      uint32
	Kind                            Kind
	Status                          Status
	Count, Flags                    uint32
	OutOff, OutLen, Need, WorkNanos uint64
}

// Put writes the descriptor.
func (r *Response) Put(d *[DescriptorBytes]byte) {
	le := binary.LittleEndian
	le.PutUint64(d[0:], r.Batch)
	le.PutUint32(d[8:], r.Generation)
	le.PutUint16(d[12:], uint16(r.Kind))
	le.PutUint16(d[14:], uint16(r.Status))
	le.PutUint32(d[16:], r.Count)
	le.PutUint32(d[20:], r.Flags)
	le.PutUint64(d[24:], r.OutOff)
	le.PutUint64(d[32:], r.OutLen)
	le.PutUint64(d[40:], r.Need)
	le.PutUint64(d[48:], r.WorkNanos)
	le.PutUint64(d[56:], 0)
}

// Get reads a descriptor, which must be a private copy. It checks what can be checked without knowing what is
// outstanding: the kind, status and flags are known, a need is there if and only if the status is NEED_MORE, the
// reserved field is 0.
func (r *Response) Get(d *[DescriptorBytes]byte) error {
	le := binary.LittleEndian
	*r = Response{
		Batch: le.Uint64(d[0:]), Generation: le.Uint32(d[8:]), Kind: Kind(le.Uint16(d[12:])), Status: Status(le.Uint16(d[14:])),
		Count: le.Uint32(d[16:]), Flags: le.Uint32(d[20:]), OutOff: le.Uint64(d[24:]), OutLen: le.Uint64(d[32:]),
		Need: le.Uint64(d[40:]), WorkNanos: le.Uint64(d[48:]),
	}
	switch {
	case le.Uint64(d[56:]) != 0:
		return fmt.Errorf("%w: response to batch %d: the reserved field is not 0", ErrMalformed, r.Batch)
	case r.Kind < KindPredict || r.Kind > KindAccuracy:
		return fmt.Errorf("%w: response to batch %d has %v, expected that of its batch", ErrMalformed, r.Batch, r.Kind)
	case r.Status > StatusMore:
		return fmt.Errorf("%w: response to batch %d: unknown %v", ErrMalformed, r.Batch, r.Status)
	case r.Flags&^knownFlags != 0:
		return fmt.Errorf("%w: response to batch %d: unknown flags 0x%x", ErrMalformed, r.Batch, r.Flags)
	case (r.Need != 0) != (r.Status == StatusNeedMore):
		return fmt.Errorf("%w: response to batch %d: %v with a need of %d bytes", ErrMalformed, r.Batch, r.Status, r.Need)
	}
	return nil
}

// Append appends a RESPONSE frame, for connections without rings.
func (r *Response) Append(dst []byte) []byte {
	var d [DescriptorBytes]byte
	r.Put(&d)
	dst, start := beginFrame(dst, TypeResponse)
	return endFrame(append(dst, d[:]...), start)
}

// Decode reads the payload of a RESPONSE frame.
func (r *Response) Decode(payload []byte) error {
	d, err := descriptorOf(TypeResponse, payload)
	if err != nil {
		return err
	}
	return r.Get(&d)
}

func descriptorOf(t Type, payload []byte) (d [DescriptorBytes]byte, err error) {
	if len(payload) != DescriptorBytes {
		return d, fmt.Errorf("%w: %v: payload of %d bytes, expected %d", ErrMalformed, t, len(payload), DescriptorBytes)
	}
	copy(d[:], payload)
	return d, nil
}
