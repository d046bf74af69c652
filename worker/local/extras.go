package local

import (
	"encoding/binary"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/wire"
)

// extras are the sections of a PREDICT behind its inputs: contexts, parameters and calls, as far as the worker wants them.
type extras struct {
	inputs int    // how many sections there are before
	mode   uint32 // of the connection
	now    api.Nanos
	value  api.Value
	call   []byte
}

var noParameters = []byte("{}")

// extra returns the item of q in the i-th of these sections, which is valid until the next call.
func (x *extras) extra(q *api.Query, i int) *api.Value {
	for _, mode := range [...]uint32{wire.ModeContexts, wire.ModeParameters, wire.ModeCalls} {
		if x.mode&mode == 0 {
			continue
		}
		if i > 0 {
			i--
			continue
		}
		switch mode {
		case wire.ModeContexts:
			x.value.Data = q.Context
		case wire.ModeParameters:
			if x.value.Data = q.Parameters; len(q.Parameters) == 0 {
				x.value.Data = noParameters
			}
		default:
			x.call = appendCall(x.call[:0], q, x.now)
			x.value.Data = x.call
		}
		break
	}
	return &x.value
}

// appendCall appends what is known of the query's call, as section 5 of the protocol says.
func appendCall(dst []byte, q *api.Query, now api.Nanos) []byte {
	left := uint64(0)
	if q.Deadline > now && q.Deadline != api.Never {
		left = max(uint64(q.Deadline-now)/1000, 1)
	}
	dst = binary.LittleEndian.AppendUint64(dst, left)
	id := q.Call
	if id == nil {
		id = &noIdentity
	}
	for _, s := range [...][]byte{id.RequestID, id.TraceParent, id.TraceState} {
		dst = append(binary.LittleEndian.AppendUint16(dst, uint16(len(s))), s...)
	}
	return dst
}

var noIdentity api.Identity
