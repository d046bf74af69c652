package http

import (
	"net/http"
	"strconv"
	"time"

	"github.com/xebec-serving/xebec/gateway/dialect"
)

// defaultContentType is Hertz's content type for answers that name none.
const defaultContentType = "text/plain; charset=utf-8"

// appendAnswer appends an answer as it is written to the connection.
func (s *Server) appendAnswer(b []byte, a *dialect.Answer) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(a.Status), 10)
	b = append(b, ' ')
	b = append(b, statusText(a.Status)...)
	b = append(b, "\r\n"...)
	b = append(b, *s.date.Load()...)
	if a.ContentType != "" {
		b = append(b, a.ContentType...)
	} else {
		b = append(b, defaultContentType...)
	}
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(a.Body)), 10)
	for i := range a.Fields {
		b = append(b, "\r\n"...)
		b = append(b, a.Fields[i].Name...)
		b = append(b, ": "...)
		b = append(b, a.Fields[i].Value...)
	}
	b = append(b, "\r\n\r\n"...)
	return append(b, a.Body...)
}

func statusText(status int) string {
	if status == 499 {
		return "Client Closed Request"
	}
	return http.StatusText(status)
}

// keepDate updates the Date header once a second instead of for each answer.
func (s *Server) keepDate(stop <-chan struct{}) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			s.stampDate(now)
		case <-stop:
			return
		}
	}
}

func (s *Server) stampDate(now time.Time) {
	b := []byte("Server: xebec\r\nDate: " + now.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT") + "\r\nContent-Type: ")
	s.date.Store(&b)
}
