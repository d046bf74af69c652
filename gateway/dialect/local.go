package dialect

import (
	"bytes"
	"context"
	"slices"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query"
)

// Local is a dialect for callers in this process: the same routes, bytes and path, without a connection. Callers that
// have values instead of bytes use [query.Path.Do].
type Local struct {
	dialect Dialect
	routes  []Route
}

// NewLocal makes a dialect's routes callable.
func NewLocal(p *query.Path, d Dialect) *Local { return &Local{d, d.Routes(p)} }

// Message is a request of a caller in this process.
type Message struct {
	Method, Path string
	// Header has the header fields by their canonical names; may be nil.
	Header map[string]string
	Body   []byte
}

// Do answers a message. The answer, which may be an error answer, has memory of its own. Do returns an error only if ctx
// ends before the answer.
func (l *Local) Do(ctx context.Context, m *Message) (*Answer, error) {
	x := &localExchange{ctx: ctx, message: m, done: make(chan struct{}, 1)}
	if serve := l.find(m, x); serve != nil {
		serve(x)
	} else {
		Fail(x, l.dialect, api.Errorf(api.NotFound, "no route %s %s", m.Method, m.Path))
	}
	return x.answer, x.err
}

// find returns the function of the route that matches with the most literal segments.
func (l *Local) find(m *Message, x *localExchange) (serve func(Exchange)) {
	most := -1
	for i := range l.routes {
		r := &l.routes[i]
		if r.Method != m.Method {
			continue
		}
		if params, exact, ok := r.match(m.Path, nil); ok && exact > most {
			most, x.params, serve = exact, params, r.Serve
		}
	}
	return serve
}

// localExchange is the Exchange of a Message.
type localExchange struct {
	ctx     context.Context
	message *Message
	params  []string // names and values
	done    chan struct{}
	answer  *Answer
	err     error
}

func (x *localExchange) Param(name string) string {
	for i := 0; i < len(x.params); i += 2 {
		if x.params[i] == name {
			return x.params[i+1]
		}
	}
	return ""
}

func (x *localExchange) HasQuery(string) bool { return false } // messages have no query string

func (x *localExchange) Header(name string) []byte {
	if v, ok := x.message.Header[name]; ok {
		return []byte(v)
	}
	return nil
}

func (x *localExchange) TakesParts() bool { return false }

func (x *localExchange) Body() []byte { return x.message.Body }

func (x *localExchange) Answer(a *Answer) {
	x.answer = &Answer{Status: a.Status, ContentType: a.ContentType, Body: bytes.Clone(a.Body), Fields: slices.Clone(a.Fields)}
	for i := range x.answer.Fields {
		x.answer.Fields[i].Value = bytes.Clone(x.answer.Fields[i].Value)
	}
}

// Submit waits for the answer.
func (x *localExchange) Submit(c *Call) {
	var released query.Signal
	if c.Borrowed() {
		released = make(query.Signal, 1)
		c.NotifyReleased(released)
	}
	c.Retain()
	c.Submit(x, nil)
	select {
	case <-x.done:
		x.Answer(&c.Answer)
	case <-x.ctx.Done():
		x.err = x.ctx.Err()
		c.Cancel()
	}
	c.Delivered()
	c.Release()
	if released != nil {
		<-released // the caller owns the body again
	}
}

// Reply signals Submit.
func (x *localExchange) Reply(*Call) { x.done <- struct{}{} }
