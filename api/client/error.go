package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Error is an error that the gateway, or something before it, has answered; or a connection that failed, whose Status is 0.
type Error struct {
	// Code is one of the gateway's, such as "overloaded", or of this package: NotConnected, ConnectionFailed, StreamBroken.
	Code    string
	Message string
	Status  int
	// RequestID names the request in the gateway's log.
	RequestID string
	// RetryAfter is what the gateway asks callers to wait; 0: it says nothing.
	RetryAfter time.Duration

	cause error
}

// Codes of this package.
const (
	NotConnected     = "not_connected"     // the request was not sent
	ConnectionFailed = "connection_failed" // the request may have been evaluated
	StreamBroken     = "stream_broken"     // a stream has stopped before its end
)

func (e *Error) Error() string {
	text := e.Code + ": " + e.Message
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// Unwrap returns the error of the connection.
func (e *Error) Unwrap() error { return e.cause }

// CodeOf returns the code of an error, or "" if it has none.
func CodeOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// errorBody is the gateway's form of an error.
type errorBody struct {
	Code      string `json:"code"`
	Cause     string `json:"cause"`
	RequestID string `json:"request_id"`
}

func (b *errorBody) error(status int) *Error {
	return &Error{Code: b.Code, Message: b.Cause, Status: status, RequestID: b.RequestID}
}

// failure is the error that an answer other than 2xx says.
func failure(status int, h http.Header, body []byte) *Error {
	var said errorBody
	var e *Error
	if err := json.Unmarshal(body, &said); err == nil && said.Code != "" {
		e = said.error(status)
	} else {
		code := map[int]string{502: "bad_gateway", 503: "unavailable", 504: "deadline_exceeded"}[status]
		if code == "" {
			code = "http_" + strconv.Itoa(status)
		}
		e = &Error{Code: code, Status: status, Message: fmt.Sprintf("the answer has status %d and no error of a gateway: %.200q", status, body)}
	}
	if e.RequestID == "" {
		e.RequestID = h.Get("X-Request-Id")
	}
	if seconds, err := strconv.Atoi(h.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(min(seconds, 24*60*60)) * time.Second
	}
	return e
}
