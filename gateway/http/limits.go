package http

import "time"

// Limits bound what clients can make the gateway hold.
type Limits struct {
	BodyBytes    int           // larger bodies are refused with 413
	HeaderBytes  int           // all headers of a request
	Connections  int           // open at a time; further ones are closed at once
	ReadTimeout  time.Duration // silence in the middle of a request
	WriteTimeout time.Duration // for a client that does not read its answer
	IdleTimeout  time.Duration // silence between requests
}

// DefaultLimits suit a gateway to which apps connect directly.
func DefaultLimits() Limits {
	return Limits{
		BodyBytes:    64 << 20,         //xebec:limit body of a request; `--max-body`
		HeaderBytes:  64 << 10,         //xebec:limit headers of a request
		Connections:  16384,            //xebec:limit open client connections; more are closed; `--max-connections`
		ReadTimeout:  30 * time.Second, //xebec:limit silence within a request
		WriteTimeout: 30 * time.Second, //xebec:limit time for a client to take its answer
		IdleTimeout:  3 * time.Minute,  //xebec:limit silence between requests on a connection
	}
}
