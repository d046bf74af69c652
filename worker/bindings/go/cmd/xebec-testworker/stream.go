//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
)

// flow answers in a stream. Its input is a list of steps.
func (m *model) flow(ctx context.Context, b *xebec.Batch) error {
	for step := range strings.FieldsSeq(string(b.Bytes(b.Signature().Inputs[0].Name, 0))) {
		word, rest, _ := strings.Cut(step, ":")
		if word == "ends" {
			defer signalEnd(rest)
			continue
		}
		if ended, err := m.step(ctx, b, word, rest); ended || err != nil {
			return err
		}
	}
	return nil
}

// signalEnd opens a FIFO for writing, which blocks until it has a reader, or makes a file.
func signalEnd(path string) {
	if end, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
		end.Close()
	}
}

// step reports whether the stream has ended.
func (m *model) step(ctx context.Context, b *xebec.Batch, word, rest string) (ended bool, err error) {
	switch word {
	case "out":
		return false, m.send(b, []byte(rest))
	case "context":
		return false, m.send(b, b.Context(0))
	case "parameters":
		return false, m.send(b, b.Parameters(0))
	case "call":
		return false, m.send(b, callText(b.Call(0)))
	case "count":
		n, err := strconv.Atoi(rest)
		for i := 0; i < n && err == nil; i++ {
			err = m.send(b, strconv.AppendInt(nil, int64(i), 10))
		}
		return false, err
	case "big":
		n, err := strconv.Atoi(rest)
		if err != nil {
			return true, err
		}
		return false, m.send(b, bytes.Repeat([]byte{'x'}, n))
	case "forever":
		n := 1
		if rest != "" {
			if n, err = strconv.Atoi(rest); err != nil {
				return true, err
			}
		}
		for err == nil {
			err = m.send(b, bytes.Repeat([]byte{'x'}, n))
		}
		return true, err
	case "wait":
		_, err := os.ReadFile(rest)
		return false, err
	case "hang":
		<-ctx.Done()
		return true, context.Cause(ctx)
	case "bad":
		return true, b.Send()
	case "refuse":
		b.Refuse(0, rest)
		return true, nil
	case "fail":
		b.Fail(0, rest)
		return true, nil
	case "die":
		os.Exit(exitDie)
	case "panic":
		panic("the marker panic")
	case "error":
		return true, errors.New("the marker error")
	}
	return true, fmt.Errorf("no step %q", word)
}

func (m *model) send(b *xebec.Batch, data []byte) error {
	spin(m.spin)
	m.confide(b)
	b.SetBytes(b.Signature().Outputs[0].Name, 0, data)
	return b.Send()
}

// callText shows what is known of a query's call.
func callText(c xebec.Call) []byte {
	when := "soon"
	switch {
	case c.Deadline.IsZero():
		when = "none"
	case c.Deadline.Before(time.Now()):
		when = "past"
	}
	return fmt.Appendf(nil, "%s|%s|%s|%s", c.RequestID, c.TraceParent, c.TraceState, when)
}
