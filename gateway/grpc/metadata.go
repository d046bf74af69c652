package grpc

import (
	"context"
	"strings"
	"sync/atomic"

	"crypto/rand"
	"encoding/hex"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
)

// metaData is the metadata of a call that has some for us.
type metaData struct{ md metadata.MD }

type metaKey struct{}

// withMetaData keeps the metadata of calls that have some for us. Others, which are most, pay nothing for it: the library copies metadata for each handler that asks.
func withMetaData(ctx context.Context, info *tap.Info) context.Context {
	for key := range info.Header {
		if strings.HasPrefix(key, "xebec-") || key == keyRequestID || key == "traceparent" || key == "authorization" {
			return context.WithValue(ctx, metaKey{}, &metaData{info.Header})
		}
	}
	return ctx
}

// metaOf returns the metadata of a call; nil: there is none for us.
func metaOf(ctx context.Context) *metaData {
	m, _ := ctx.Value(metaKey{}).(*metaData)
	return m
}

// Header returns the value of a header field by its canonical name: metadata has the same options as HTTP.
func (m *metaData) Header(name string) []byte {
	if v := m.md[strings.ToLower(name)]; len(v) == 1 {
		return []byte(v[0])
	}
	return nil
}

// authorizationOf is what a call shows that it may change something; empty: nothing.
func authorizationOf(ctx context.Context) string {
	if m := metaOf(ctx); m != nil {
		return string(m.Header("Authorization"))
	}
	return ""
}

var (
	processID = func() string {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		return hex.EncodeToString(b[:]) + "-g"
	}()
	requests atomic.Uint64
)

// identify names a call: by its metadata, or by a name of its own. m may be nil.
func (m *metaData) identify(id *dialect.Identity) {
	id.Set(&api.Identity{})
	if m == nil {
		id.RequestID = appendRequestID(id.RequestID)
		return
	}
	if v := m.Header(keyRequestID); dialect.ValidRequestID(v) {
		id.RequestID = append(id.RequestID, v...)
	} else {
		id.RequestID = appendRequestID(id.RequestID)
	}
	if v := m.Header("traceparent"); v != nil {
		id.TraceParent = append(id.TraceParent, dialect.ParseTraceParent(v)...)
		if state := m.Header("tracestate"); len(id.TraceParent) > 0 && dialect.ValidTraceState(state) {
			id.TraceState = append(id.TraceState, state...)
		}
	}
}

func appendRequestID(dst []byte) []byte {
	const digits = "0123456789abcdef"
	dst, n := append(dst, processID...), requests.Add(1)
	for shift := 44; shift >= 0; shift -= 4 {
		dst = append(dst, digits[n>>shift&15])
	}
	return dst
}
