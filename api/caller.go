package api

import "context"

// Caller identifies the person or program that asked for a change, as far as the gateway knows it.
type Caller struct {
	// Name is the name in the caller's Xebec-User header, or the name of the token that it sent.
	Name string
	// Address is the remote address of the connection.
	Address string
}

// String formats the caller as the history shows it.
func (c Caller) String() string {
	switch {
	case c.Name == "":
		return c.Address
	case c.Address == "":
		return c.Name
	}
	return c.Name + " (" + c.Address + ")"
}

type callerKey struct{}

// WithCaller returns a context that carries the caller.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller that ctx carries, or the zero Caller.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// StaleError reports that objects have changed since the caller read them.
type StaleError struct {
	// Message is for people: what is declared now, who changed it and when, and what to do.
	Message string
	Objects []StaleObject
}

func (e *StaleError) Error() string { return e.Message }

// LogQuery selects lines of a model's logs.
type LogQuery struct {
	Model string
	// Version is empty for all versions.
	Version string
	// Lines is the number of past lines.
	Lines int
	// Follow asks for later lines as well.
	Follow bool
}
