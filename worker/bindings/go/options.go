//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/wire"
)

// Version is the binding's version, which the worker reports to the gateway.
const Version = "0.1.0"

// Launch says where to connect and what to serve. The gateway passes it in the environment of the workers that it
// starts.
type Launch struct {
	Socket  string // path of the gateway's unix socket; "@" begins an abstract name
	Token   string // one-time token of this launch
	Model   string
	Version string
	// BusyPoll is how long the worker may spin before it sleeps, while it expects a batch; 0: it sleeps at once.
	BusyPoll time.Duration
}

// launchFromEnv reads XEBEC_SOCKET, XEBEC_TOKEN, XEBEC_MODEL, XEBEC_VERSION and XEBEC_BUSY_POLL.
func launchFromEnv() (Launch, error) {
	var l Launch
	for _, v := range []struct {
		name string
		to   *string
	}{{"XEBEC_SOCKET", &l.Socket}, {"XEBEC_TOKEN", &l.Token}, {"XEBEC_MODEL", &l.Model}, {"XEBEC_VERSION", &l.Version}} {
		if *v.to = os.Getenv(v.name); *v.to == "" {
			return l, fmt.Errorf("xebec: %s is not set: a worker is started by the gateway, which sets it; deploy the model with xebec deploy", v.name)
		}
	}
	if text := os.Getenv("XEBEC_BUSY_POLL"); text != "" {
		micros, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return l, fmt.Errorf("xebec: XEBEC_BUSY_POLL=%q: expected microseconds, as the gateway sets it", text)
		}
		l.BusyPoll = time.Duration(micros) * time.Microsecond
	}
	return l, nil
}

// Option changes what Serve does.
type Option func(*config)

type config struct {
	launch       *Launch
	feedback     func(context.Context, *Batch) error
	accuracy     func(context.Context) (float64, error)
	signature    *api.Signature
	load         func(*api.Signature) error
	stop         context.Context
	capabilities uint32
	openLines    func(fd int) (*lines, error) // nil: the model calls no other functions
	concurrency  int                          // 0: not given
	exit         func(code int)               // os.Exit except in tests
	grace        time.Duration                // goneGrace except in tests

	steps     stepping // advances all streams together; nil: each has a goroutine
	streaming bool     // the model answers in streams
	shared    bool     // goroutines other than the loop's answer requests
}

// WithFeedback declares that the model learns from feedback. f receives the inputs of queries as predict did, the
// context of each if [WithContexts] is given, and the label of each as JSON text ([Batch.Label]). It sets no outputs.
func WithFeedback(f func(ctx context.Context, b *Batch) error) Option {
	return func(c *config) {
		c.feedback = f
		c.capabilities |= wire.CapFeedback
	}
}

// WithAccuracy declares that the model knows how accurate it has been lately, from 0 to 1.
func WithAccuracy(f func(ctx context.Context) (float64, error)) Option {
	return func(c *config) {
		c.accuracy = f
		c.capabilities |= wire.CapAccuracy
	}
}

// WithContexts requests the context of each query (user, session …): [Batch.Context].
func WithContexts() Option {
	return func(c *config) { c.capabilities |= wire.CapContexts }
}

// WithConfidences declares that the model returns a confidence per output: [Batch.Confidences].
func WithConfidences() Option {
	return func(c *config) { c.capabilities |= wire.CapConfidences }
}

// WithConcurrency lets predict be called for up to n batches at once, on as many goroutines. n is at most 62. It is for
// models that wait for something: a model that computes gains nothing. Feedback and the accuracy may be asked for
// meanwhile. With [WithStreams], n is how many streams are evaluated at once.
func WithConcurrency(n int) Option {
	return func(c *config) {
		if c.concurrency = n; n == 0 {
			c.concurrency = -1 // given, and refused by Serve
		}
	}
}

// WithStreams declares that the model answers in streams, as stream: true in its manifest does. predict is called for
// each query alone, on a goroutine of its own, and sends one output after the other: [Batch.Send]. Up to 16 streams are
// evaluated at once unless [WithConcurrency] says otherwise.
func WithStreams() Option {
	return func(c *config) { c.capabilities |= wire.CapStreams }
}

// WithParameters requests what each query's caller sent as parameters: [Batch.Parameters].
func WithParameters() Option {
	return func(c *config) { c.capabilities |= wire.CapParameters }
}

// WithCalls requests the deadline, the request id and the trace of the call that each query came with: [Batch.Call].
func WithCalls() Option {
	return func(c *config) { c.capabilities |= wire.CapCalls }
}

// WithFunctionCalls declares that the model calls other functions and models of the gateway, which its manifest names in calls:
// [Batch.CallFunction].
func WithFunctionCalls() Option {
	return func(c *config) {
		c.openLines = newLines
		c.capabilities |= wire.CapLines
	}
}

// WithSignature declares the signature that the program expects. The gateway refuses the worker unless the model is
// declared with exactly the same names, types and shapes.
func WithSignature(sig *api.Signature) Option {
	return func(c *config) { c.signature = sig }
}

// WithLoad has f called with the model's signature before the worker is ready for batches. Its error ends Serve, so the version
// fails when it is loaded.
func WithLoad(f func(sig *api.Signature) error) Option {
	return func(c *config) { c.load = f }
}

// WithLaunch replaces the environment variables.
func WithLaunch(l Launch) Option {
	return func(c *config) { c.launch = &l }
}

// WithStop makes the end of ctx act like SIGTERM: the worker announces that it leaves, and drains.
func WithStop(ctx context.Context) Option {
	return func(c *config) { c.stop = ctx }
}

// WithSocketDescriptors makes the worker use the socket for descriptors instead of the shared rings, as bindings of
// languages without memory fences do. It is slower and meant for tests of the protocol.
func WithSocketDescriptors() Option {
	return func(c *config) { c.capabilities &^= wire.CapRing }
}
