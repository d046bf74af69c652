package server

import (
	"errors"
	"os"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/gateway/internal/accept"
	"github.com/xebec-serving/xebec/gateway/takeover"
)

// canTakeConnections reports whether this process, which takes over, can go on with connections of the old one's function port.
func (s *Server) canTakeConnections() bool { return s.cfg.Listen != NoPort && s.cfg.Cert == "" }

// handOver passes the connections of the function port on to the new process, or has each close with its next answer.
func (g *giver) handOver() {
	if !g.takesConnections || g.functionTLS != nil {
		g.http.CloseAfterAnswers()
		return
	}
	out, there, err := accept.NewOutlet()
	if err == nil {
		err = g.conn.Send(takeover.KindConnections, nil, there)
		if there.Close(); err != nil {
			_ = out.Close() // the error is that of Send
		}
	}
	if err != nil {
		g.log.Warn("the connections that clients keep close with their next answers", zap.Int("process", g.conn.PID()), zap.Error(err))
		g.http.CloseAfterAnswers()
		return
	}
	g.inBackground(func() {
		n, err := g.http.HandOver(out)
		if err != nil {
			g.log.Warn("some connections that clients keep close with their next answers", zap.Int("process", g.conn.PID()), zap.Int("passed_on", n), zap.Error(err))
			return
		}
		g.log.Info("the connections that clients keep have gone to the new process", zap.Int("process", g.conn.PID()), zap.Int("connections", n))
	})
}

// takeConnections goes on with the connections of the old process, which sends the socket that they come from.
func (s *Server) takeConnections() {
	b := s.before
	var from *os.File
	select {
	case from = <-b.connections:
	case <-b.over:
		select {
		case from = <-b.connections: // it has sent some, and died
		default:
			return
		}
	case <-s.life.Done():
		return
	}
	if s.http == nil || s.functionTLS != nil {
		from.Close()
		return
	}
	in, err := accept.NewInlet(from, s.function.Addr())
	n := 0
	if err == nil {
		n, err = s.http.TakeConnections(in)
	}
	if err != nil {
		s.log.Warn("some connections that clients keep stay with the process before, and close with their next answers", zap.Int("process", b.conn.PID()), zap.Int("taken", n), zap.Error(err))
		return
	}
	s.log.Info("took the connections that clients keep", zap.Int("from_process", b.conn.PID()), zap.Int("connections", n))
}

var errConnections = errors.New("the old process passes on connections a second time, or to a process that has not asked for them")

// connect keeps the socket that the old process's connections come from until this process serves.
func (b *predecessor) connect(files []*os.File) error {
	if len(files) == 1 {
		select {
		case b.connections <- files[0]:
			return nil
		default:
		}
	}
	for _, f := range files {
		f.Close()
	}
	return errConnections
}
