package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/dialect/calls"
	"github.com/xebec-serving/xebec/gateway/http"
	"github.com/xebec-serving/xebec/worker"
	"go.uber.org/zap"
)

const (
	// lineBytes is apart from the memory for bodies of clients, so that models cannot take that.
	lineBytes = 256 << 20 //xebec:limit bodies of calls that models make, together
	// maxLines bounds what all replicas have.
	maxLines = 16384 //xebec:limit connections on which models call others, of all replicas
	// closeLinesWithin is for answers on lines whose replicas have ended.
	closeLinesWithin = time.Second
)

// lineServer serves lines. It starts with the first one: most gateways have none.
type lineServer struct {
	start func() (*http.Server, context.CancelFunc, error)

	mu     sync.Mutex
	server *http.Server
	end    context.CancelFunc
	closed bool
}

// add serves a line. What cannot be served is closed, and the worker asks again when it needs one.
func (l *lineServer) add(model string, calls []string, line worker.Line) {
	server := l.started()
	if server == nil {
		_ = line.Conn.Close()
		line.Closed()
		return
	}
	_ = server.AddLine(line.Conn, &caller{line.From, model, calls}, line.Closed) // it has closed the line if it fails
}

func (l *lineServer) started() *http.Server {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server == nil && !l.closed {
		l.server, l.end, _ = l.start() // logged; the next line tries again
	}
	return l.server
}

// close ends the server after the replicas.
func (l *lineServer) close() error {
	l.mu.Lock()
	l.closed = true
	server, end := l.server, l.end
	l.server = nil
	l.mu.Unlock()
	if server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLinesWithin)
	defer cancel()
	defer end()
	return server.Shutdown(ctx)
}

// startLines starts the server of lines. The second result ends what Shutdown does not.
func (s *Server) startLines() (*http.Server, context.CancelFunc, error) {
	limits := s.cfg.limits()
	limits.Connections, limits.FirstByteTimeout, limits.IdleTimeout = maxLines, 0, 0
	bodies := http.NewBodies(lineBytes)
	server, err := http.New(http.Config{
		Path: s.path, Limits: limits, Bodies: bodies, Panicked: s.panicked("lines"), Dialects: []dialect.Dialect{calls.Dialect{}},
	})
	if err != nil {
		s.log.Error("models cannot call others: their connections cannot be served", zap.Error(err))
		return nil, nil, err
	}
	life, end := context.WithCancel(context.Background())
	go bodies.Run(life, nil)
	go func() {
		if err := server.Serve(); err != nil {
			s.log.Error("connections of models that call others are served no more", zap.Error(err))
		}
	}()
	return server, end, nil
}

// caller is a replica that calls what its model's manifest declares.
type caller struct {
	worker.Caller
	model string
	calls []string
}

var _ dialect.Caller = (*caller)(nil)

func (c *caller) Model() string { return c.model }

func (c *caller) May(callee string) bool { return slices.Contains(c.calls, callee) }
