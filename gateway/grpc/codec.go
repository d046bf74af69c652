package grpc

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// codec passes messages that carry tensors on as bytes, and everything else through the protobuf library.
type codec struct{}

func (codec) Name() string { return "proto" }

// incoming is a message as bytes. Its owner frees it.
type incoming struct{ buffer mem.Buffer }

func (in *incoming) bytes() []byte {
	if in.buffer == nil {
		return nil
	}
	return in.buffer.ReadOnlyData()
}

func (in *incoming) free() {
	if in.buffer != nil {
		in.buffer.Free()
		in.buffer = nil
	}
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch v := v.(type) {
	case *incoming:
		v.free()
		v.buffer = data.MaterializeToBuffer(mem.DefaultBufferPool())
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
