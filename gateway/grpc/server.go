package grpc

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // a compressor is one for the whole process
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/inferencepb"
	"github.com/xebec-serving/xebec/api/tensorflowpb"
	"github.com/xebec-serving/xebec/api/xebecpb"
	"github.com/xebec-serving/xebec/gateway/grpc/meter"
	"github.com/xebec-serving/xebec/gateway/query"
)

const (
	// maxStreams bounds the calls of one connection that are served at a time, as HTTP/2 does on the function port.
	maxStreams = 250 //xebec:limit gRPC calls at a time on a connection
	// windowBytes bounds complete messages of a stream that have not been read. A larger message gets a window of its own size.
	windowBytes = 128 << 10 //xebec:limit unread messages of a gRPC stream
	// minPing is how often a client may ping.
	minPing = 5 * time.Second //xebec:limit least time between the pings of a gRPC client; one that pings more often is disconnected
	// pingAfter is how long a connection may be silent before it is pinged, and pingTimeout how long the answer may take.
	pingAfter   = time.Minute
	pingTimeout = 20 * time.Second //xebec:limit time for a gRPC client to answer a ping
	// workers are goroutines that are kept for calls. New ones would grow their stacks for each call, which takes a quarter of its time; calls beyond
	// these get one of their own.
	workers = 64
	// watchEvery is how often connections are looked at, and what waits for a change of health.
	watchEvery = 500 * time.Millisecond
)

// Limits bound what clients can make the gateway hold, and how long. They are those of HTTP.
type Limits struct {
	MessageBytes int // larger messages are refused with RESOURCE_EXHAUSTED, compressed or not
	HeaderBytes  int // metadata of a call
	// FirstByteTimeout bounds the time from accept to the end of the handshake, HeaderTimeout that in which a call of one message must begin to send it,
	// IdleTimeout that of a connection without a call. 0: no limit.
	FirstByteTimeout, HeaderTimeout, IdleTimeout time.Duration
	// MinRate is how many bytes of a message must come, and of answers must be taken, each second after RateGrace; 0: any rate.
	MinRate   int
	RateGrace time.Duration
}

// Memory is the budget for messages, which HTTP shares.
type Memory interface {
	// Reserve takes bytes, or reports that there are too few. Hold takes bytes that are held already.
	Reserve(n int) bool
	Hold(n int)
	Return(n int)
	// Full reports whether nothing is left.
	Full() bool
}

// Config configures a server.
type Config struct {
	Path     *query.Path
	Listener net.Listener
	// TLS makes the port speak TLS; nil: clear text.
	TLS    *tls.Config
	Limits Limits
	Memory Memory
	// Version is the gateway's version. Ready reports whether it is ready, and if not why.
	Version string
	Ready   func() (bool, string)
	// Models describes all versions of a model, or of all models where name is empty.
	Models func(ctx context.Context, name string) ([]api.ModelStatus, error)
	// Statistics counts what all versions of a model have done, or those of all models where name is empty.
	Statistics func(name string) []api.ModelStatistics
	// SetLoaded has a model keep a replica, or lets it sleep, for a caller with this authorization; nil: no caller may.
	SetLoaded func(ctx context.Context, authorization, model string, loaded bool) error
	// Refused is told of calls that are ended and connections that are closed, by reason; may be nil. Panicked is told of handlers that have panicked; may be nil.
	Refused  func(r Reason)
	Panicked func(p Panic)
}

// Reason is why the server has ended a call or closed a connection.
type Reason uint8

// The reasons.
const (
	TooSlow Reason = iota // a message came too slowly
	Unread                // an answer was not taken
	NoRoom                // there was no memory for the message
)

// Server serves one port.
type Server struct {
	cfg    Config
	server *grpc.Server
	start  time.Time

	calls    sync.Pool // *inferCall
	asks     sync.Pool // *askCall
	servings sync.Pool // *servingCall
	gather   gather
	leaving  atomic.Bool
	ending   chan struct{} // closed by Shutdown
	end      sync.Once
	live     atomic.Int64 // connections

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// New makes a server. Serve starts it.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, start: time.Now(), ending: make(chan struct{}), conns: map[*conn]struct{}{}}
	s.calls.New = func() any { return s.newInferCall() }
	s.asks.New = func() any { return s.newAskCall() }
	s.servings.New = func() any { return s.newServingCall() }
	s.gather.panicked = s.panicked
	l := &cfg.Limits
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{}),
		grpc.MaxRecvMsgSize(l.MessageBytes), grpc.MaxHeaderListSize(uint32(l.HeaderBytes)), grpc.MaxConcurrentStreams(maxStreams),
		grpc.InitialWindowSize(windowBytes), grpc.NumStreamWorkers(workers), grpc.InTapHandle(s.tapHandle), grpc.ReadBufferSize(0),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: l.IdleTimeout, Time: pingAfter, Timeout: pingTimeout}),
	}
	if l.FirstByteTimeout > 0 {
		options = append(options, grpc.ConnectionTimeout(l.FirstByteTimeout))
	}
	if cfg.TLS != nil {
		options = append(options, grpc.Creds(newMeteredTLS(s, cfg.TLS)))
	}
	s.server = grpc.NewServer(options...)
	services := guard{s.server, s}
	services.RegisterService(s.inferenceService(), pb.GRPCInferenceServiceServer(&inference{server: s}))
	services.RegisterService(&xebecpb.Functions_ServiceDesc, xebecpb.FunctionsServer(&functions{server: s}))
	tensorflowpb.RegisterPredictionServiceServer(services, &prediction{server: s})
	tensorflowpb.RegisterModelServiceServer(services, &modelService{server: s})
	healthpb.RegisterHealthServer(services, &health{server: s})
	reflection.Register(services)
	return s
}

// Serve serves until Shutdown.
func (s *Server) Serve() error {
	watched := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(watched)
		s.watch(stop)
	}()
	defer func() { close(stop); <-watched }()
	return s.server.Serve(&listener{s.cfg.Listener, s})
}

// Connections counts the open connections.
func (s *Server) Connections() int { return int(s.live.Load()) }

// Quiesce announces the end: health says NOT_SERVING from now on. Calls are served.
func (s *Server) Quiesce() { s.leaving.Store(true) }

// Shutdown accepts no further connection and no further call, and asks clients to leave. It waits for the calls under way as long as ctx allows.
func (s *Server) Shutdown(ctx context.Context) {
	s.Quiesce()
	s.end.Do(func() { close(s.ending) })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.server.GracefulStop()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		s.server.Stop()
		<-ended
	}
}

// now is a monotonic clock.
func (s *Server) now() api.Nanos { return api.Nanos(time.Since(s.start)) + 1 }

// watch ends calls and connections that are too slow.
func (s *Server) watch(stop chan struct{}) {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	var all []*conn
	for {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		s.mu.Lock()
		all = all[:0]
		for c := range s.conns {
			all = append(all, c)
		}
		s.mu.Unlock()
		now := s.now()
		for _, c := range all {
			if reason, slow := c.slow(now); slow {
				s.refused(reason)
				_ = c.Close()
			}
		}
		clear(all)
	}
}

func (s *Server) refused(r Reason) {
	if s.cfg.Refused != nil {
		s.cfg.Refused(r)
	}
}

func (s *Server) meterLimits() meter.Limits {
	return meter.Limits{MinRate: int64(s.cfg.Limits.MinRate), Grace: api.Nanos(s.cfg.Limits.RateGrace)}
}
