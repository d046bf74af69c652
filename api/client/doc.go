// Package client calls the functions of a Xebec gateway, for apps in Go. It needs the standard library alone.
//
//	c, err := client.New(client.Config{Address: "localhost:1337"})
//	...
//	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
//	defer cancel()
//	p, err := c.Predict(ctx, "digits", []float32{0, 0, 5, 13}, nil)
//	...
//	var digit int64
//	err = p.Decode(&digit)
//
// # What it promises
//
// A context's deadline is the call's latency objective: the gateway is told what is left of it, less the time for the way back, and so answers
// the function's default in time instead of being cut off. Without a deadline the function's own objective holds.
//
// Requests that were not evaluated are sent again, after what Retry-After says and a random pause, as long as the context, the number of
// attempts and the client's budget permit: [Retry]. A request that may have had an effect, feedback by input, is sent again only if it was not sent.
//
// Errors of the gateway are [*Error] with its code. A context that ends is an error that wraps the context's.
//
// A Client is for any number of goroutines, and keeps its connections.
//
// # What it never does
//
// It starts no goroutine of its own, logs nothing, and reads no more of an answer than [MaxAnswerBytes], or of a line of a stream than
// [MaxLineBytes].
//
// Where to read next: client.go is the API, send.go the attempts, stream.go the streams, error.go what a call can end with.
package client
