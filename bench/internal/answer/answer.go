package answer

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Answer is an HTTP answer. In JSON the body is base64.
type Answer struct {
	Status int         `json:"status"`
	Server string      `json:"server"` // the Server field
	Fields [][2]string `json:"fields"` // sorted by name
	Body   []byte      `json:"body"`
}

// maxBodyBytes bounds an answer that is kept in memory and written to a file.
const maxBodyBytes = 64 << 20

// own are the fields that a server sets itself. Server is kept separately.
var own = []string{"Date", "Content-Length", "Connection", "Server"}

// Of posts body to url and returns the answer. Extra fields are lines without CRLF ("Xebec-Slo-Ms: 50").
func Of(client *http.Client, url, contentType string, body []byte, fields ...string) (*Answer, error) {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ":")
		req.Header.Set(name, strings.TrimSpace(value))
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBodyBytes+1))
	if err != nil {
		return nil, fmt.Errorf("answer of %s: %w", url, err)
	}
	if len(data) > maxBodyBytes {
		return nil, fmt.Errorf("answer of %s has more than %d bytes", url, maxBodyBytes)
	}
	a := &Answer{Status: resp.StatusCode, Server: resp.Header.Get("Server"), Fields: [][2]string{}, Body: data}
	for name, values := range resp.Header {
		if slices.Contains(own, name) {
			continue
		}
		for _, v := range values {
			a.Fields = append(a.Fields, [2]string{name, v})
		}
	}
	slices.SortFunc(a.Fields, func(x, y [2]string) int {
		return bytes.Compare([]byte(x[0]+"\x00"+x[1]), []byte(y[0]+"\x00"+y[1]))
	})
	return a, nil
}

// Equal reports whether a client sees the same answer.
func (a *Answer) Equal(b *Answer) bool {
	return a.Status == b.Status && a.Server == b.Server && slices.Equal(a.Fields, b.Fields) && bytes.Equal(a.Body, b.Body)
}
