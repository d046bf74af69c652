package grpc

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/grpc/oipwire"
)

// codec passes messages that carry tensors on as bytes, and everything else through the protobuf library.
type codec struct{}

func (codec) Name() string { return "proto" }

// incoming is a message as bytes. Its owner frees it.
type incoming struct {
	parts mem.BufferSlice // as they came; empty: they are together
	size  int             // of all parts
	head  []byte          // memory for the beginning of the message
	whole mem.Buffer      // the message, or what of it follows the head
	place api.Slot        // instead of whole: what follows the head lies there
}

const (
	// laidBytes is the size from which a message stays in parts until it is known which model reads it, so that its contents are copied once.
	laidBytes = 64 << 10
	// headBytes is how much of it is looked at for that.
	headBytes = 4 << 10
)

// set takes a message. It does not keep the slice, but the buffers.
func (in *incoming) set(message mem.BufferSlice) {
	in.free()
	if n := message.Len(); n >= laidBytes && len(message) > 1 {
		message.Ref()
		in.parts, in.size = append(in.parts, message...), n
		return
	}
	in.whole = message.MaterializeToBuffer(mem.DefaultBufferPool())
	in.size = in.whole.Len()
}

// bytes returns the whole message.
func (in *incoming) bytes() []byte {
	if len(in.parts) > 0 {
		in.whole = in.parts.MaterializeToBuffer(mem.DefaultBufferPool())
		in.dropParts()
	}
	if in.whole == nil {
		return nil
	}
	return in.whole.ReadOnlyData()
}

// split returns the message, or only what is before its large contents. If there are contents, join must be called before free.
func (in *incoming) split() (head []byte, contents int) {
	if len(in.parts) == 0 {
		return in.bytes(), 0
	}
	in.head = slices.Grow(in.head[:0], headBytes)[:headBytes]
	in.head = in.head[:in.parts.CopyTo(in.head)]
	end, data, ok := oipwire.Contents(in.head, in.size)
	if !ok {
		return in.bytes(), 0
	}
	return in.head[:end], in.size - data
}

// join returns the contents, in one piece. They lie in place if it is not nil, which belongs to the message then.
func (in *incoming) join(contents int, place api.Slot) []byte {
	var b []byte
	if in.place = place; place != nil {
		b = place.Bytes()[:contents]
	} else {
		memory := mem.DefaultBufferPool().Get(contents)
		in.whole, b = mem.NewBuffer(memory, mem.DefaultBufferPool()), *memory
	}
	skip, at := in.size-contents, 0
	for _, p := range in.parts {
		d := p.ReadOnlyData()
		n := min(skip, len(d))
		skip -= n
		at += copy(b[at:], d[n:])
	}
	in.dropParts()
	return b
}

func (in *incoming) dropParts() {
	in.parts.Free()
	clear(in.parts)
	in.parts = in.parts[:0]
}

func (in *incoming) free() {
	in.dropParts()
	if in.whole != nil {
		in.whole.Free()
		in.whole = nil
	}
	if in.place != nil {
		in.place.Free()
		in.place = nil
	}
	in.size = 0
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch v := v.(type) {
	case *incoming:
		v.set(data)
		return nil
	case proto.Message:
		b := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer b.Free()
		if err := checkWeight(b.ReadOnlyData(), v.ProtoReflect().Descriptor()); err != nil {
			return err
		}
		return proto.Unmarshal(b.ReadOnlyData(), v)
	}
	return fmt.Errorf("a %T is no message", v)
}

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case mem.BufferSlice:
		return v, nil
	case proto.Message:
		b, err := proto.Marshal(v)
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	return nil, fmt.Errorf("a %T is no message", v)
}

// answerBuffer returns memory for an answer of at most n bytes.
func answerBuffer(n int) *[]byte { return mem.DefaultBufferPool().Get(n) }

// answerOf makes a message of an answer that was appended to b[:0]. The connection, which may be nil, is told when it was sent.
func answerOf(b *[]byte, answer []byte, c *conn) mem.BufferSlice {
	if mem.IsBelowBufferPoolingThreshold(cap(answer)) || cap(answer) != cap(*b) {
		return mem.BufferSlice{mem.SliceBuffer(answer)} // small, or it has outgrown b: the collector has it
	}
	*b = answer
	if c == nil {
		return mem.BufferSlice{mem.NewBuffer(b, mem.DefaultBufferPool())}
	}
	c.unsent.Add(int64(cap(answer)))
	return mem.BufferSlice{mem.NewBuffer(b, (*sent)(c))}
}

// sent is a connection as the pool that answers return to.
type sent conn

// Get is not called: it is for makers of buffers.
func (s *sent) Get(n int) *[]byte { return mem.DefaultBufferPool().Get(n) }

// Put takes the memory of an answer that was sent.
func (s *sent) Put(b *[]byte) {
	s.unsent.Add(-int64(cap(*b)))
	mem.DefaultBufferPool().Put(b)
}
