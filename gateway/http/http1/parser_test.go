package http1

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

const second = api.Nanos(1e9)

func testLimits() *Limits {
	return &Limits{BodyBytes: 1000, HeaderBytes: 400, FirstByte: 30 * second, Header: 10 * second, Idle: 180 * second, MinRate: 16 << 10, Grace: 10 * second}
}

// transcript feeds the input in pieces of the given sizes, the last size again and again, and writes down the events.
func transcript(l *Limits, in []byte, sizes ...int) string {
	var out strings.Builder
	var p Parser
	var body []byte
	p.Begin(l, 0)
	for i := 0; len(in) > 0; i++ {
		size := min(max(1, sizes[min(i, len(sizes)-1)]), len(in))
		piece := bytes.Clone(in[:size])
		in = in[size:]
		for rest := piece; ; {
			n, e := p.Next(rest, 1)
			rest = rest[n:]
			h := p.Head()
			switch e.Kind {
			case Headed:
				fmt.Fprintf(&out, "%s %s?%s host=%s minor=%d length=%d close=%v continue=%v", h.Method(), h.Path(), h.Query(), h.Host(), h.Minor, h.Length, h.Close, h.Continue)
				for i := range h.Fields() {
					name, value := h.Field(i)
					fmt.Fprintf(&out, " %s=%s", name, value)
				}
				out.WriteByte('\n')
			case Body:
				body = append(body, e.Data...)
			case End:
				fmt.Fprintf(&out, "body %q\n", body)
				body = body[:0]
				p.Again(1)
			case Fail:
				fmt.Fprintf(&out, "fail %d %d %s\n", e.Failure.Status, e.Failure.Reason, e.Failure.Text)
				return out.String()
			}
			if len(rest) == 0 && (e.Kind == More || e.Kind == Fail) {
				break
			}
		}
		for i := range piece {
			piece[i] = 0xff // the parser must not keep the input
		}
	}
	if f := p.Close(); f != nil {
		out.WriteString("incomplete\n")
	}
	return out.String()
}

const (
	ok   = 200
	open = 0 // neither refused nor complete
)

// framings: one message each, and what follows it. A refused message must hide what follows; want counts the requests.
var framings = []struct {
	section, name, in string
	status, requests  int
}{
	{"9112-2.1", "a request", "GET /a HTTP/1.1\r\nHost: x\r\n\r\n", ok, 1},
	{"9112-2.1", "two requests", "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n", ok, 2},
	{"9112-2.2", "one empty line before", "\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n", ok, 1},
	{"9112-2.2", "two empty lines before", "\r\n\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-2.2", "LF alone in the request line", "GET /a HTTP/1.1\nHost: x\r\n\r\n", 400, 0},
	{"9112-2.2", "LF alone in a field", "GET /a HTTP/1.1\r\nHost: x\n\r\n", 400, 0},
	{"9112-2.2", "LF alone at the end", "GET /a HTTP/1.1\r\nHost: x\r\n\n", 400, 0},
	{"9112-2.2", "a bare CR in a value", "GET /a HTTP/1.1\r\nHost: x\r\nA: b\rC: d\r\n\r\n", 400, 0},
	{"9112-2.2", "a bare CR in the request line", "GET /a\r HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-2.2", "white space before the first field", "GET /a HTTP/1.1\r\n Host: x\r\n\r\n", 400, 0},
	{"9112-2.3", "HTTP/1.0", "GET /a HTTP/1.0\r\n\r\n", ok, 1},
	{"9112-2.3", "lower case version", "GET /a http/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9110-15.6.6", "HTTP/9.9", "GET /a HTTP/9.9\r\nHost: x\r\n\r\n", 505, 0},
	{"9110-15.6.6", "HTTP/1.2", "GET /a HTTP/1.2\r\nHost: x\r\n\r\n", 505, 0},
	{"9110-15.6.6", "HTTP/0.9 by name", "GET /a HTTP/0.9\r\n\r\n", 505, 0},
	{"9113-3.4", "the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, 0},
	{"9112-3", "no version", "GET /a\r\n\r\n", 400, 0},
	{"9112-3", "HTTP/1.10", "GET /a HTTP/1.10\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-3", "two spaces", "GET  /a HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-3", "a tab for a space", "GET\t/a HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-3", "a space in the target", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-3", "space after the version", "GET /a HTTP/1.1 \r\nHost: x\r\n\r\n", 400, 0},
	{"9112-3", "no target", "GET HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-3", "a long request line", "GET /" + strings.Repeat("a", MaxLineBytes) + " HTTP/1.1\r\nHost: x\r\n\r\n", 414, 0},
	{"9112-3.1", "no method", " /a HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-3.1", "a method that is not a token", "G(T /a HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-3.1", "an unknown method", "BREW /a HTTP/1.1\r\nHost: x\r\n\r\n", ok, 1},
	{"9112-3.2", "no Host", "GET /a HTTP/1.1\r\n\r\n", 400, 0},
	{"9112-3.2", "two Hosts", "GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400, 0},
	{"9112-3.2", "two equal Hosts", "GET /a HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n", 400, 0},
	{"9112-3.2", "two Hosts in HTTP/1.0", "GET /a HTTP/1.0\r\nHost: x\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-3.2", "a Host with a path", "GET /a HTTP/1.1\r\nHost: x/y\r\n\r\n", 400, 0},
	{"9112-3.2", "a list of Hosts is no host", "GET /a HTTP/1.1\r\nHost: x y\r\n\r\n", 400, 0},
	{"9110-4.2.1", "an empty Host", "GET /a HTTP/1.1\r\nHost:\r\n\r\n", 400, 0},
	{"9112-3.2", "an IPv6 Host", "GET /a HTTP/1.1\r\nHost: [::1]:1337\r\n\r\n", ok, 1},
	{"9112-3.2", "a fragment", "GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-3.2", "a raw byte over 127", "GET /\xc3\xa4 HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-3.2.1", "no leading slash", "GET a HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-3.2.2", "absolute form", "GET http://y:80/a?b HTTP/1.1\r\nHost: x\r\n\r\n", ok, 1},
	{"9112-3.2.2", "absolute form without a path", "GET HTTPS://y?b HTTP/1.1\r\nHost: x\r\n\r\n", ok, 1},
	{"9112-3.2.2", "absolute form without a host", "GET http:///a HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-3.2.2", "absolute form of another scheme", "GET ftp://y/a HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9110-4.2.4", "absolute form with a user", "GET http://u@y/a HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-3.2.3", "authority form", "CONNECT y:80 HTTP/1.1\r\nHost: y:80\r\n\r\n", 501, 0},
	{"9112-3.2.3", "authority form of GET", "GET y:80 HTTP/1.1\r\nHost: y:80\r\n\r\n", 400, 0},
	{"9112-3.2.4", "asterisk form", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", ok, 1},
	{"9112-3.2.4", "asterisk form of GET", "GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"3986-2.1", "a broken percent", "GET /%4 HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"3986-2.1", "a percent without digits", "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"3986-2.4", "an encoded slash", "GET /echo/..%2fnoop/predict HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"3986-2.4", "an encoded slash in upper case", "GET /a%2Fb HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"3986-2.4", "an encoded backslash", "GET /a%5cb HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"3986-2.4", "a backslash", "GET /a\\b HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"3986-2.4", "a NUL", "GET /a%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"3986-2.4", "an encoded line end", "GET /a%0d%0ab HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"3986-3.3", "dot dot", "GET /a/../b HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"3986-3.3", "a dot at the end", "GET /a/. HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"3986-3.3", "encoded dots", "GET /a/%2e%2E/b HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"3986-3.3", "half encoded dots", "GET /.%2e HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"3986-3.3", "three dots are a name", "GET /.../a.b/.c HTTP/1.1\r\nHost: x\r\n\r\n", ok, 1},
	{"3986-3.3", "dots in the query", "GET /a?../%2f HTTP/1.1\r\nHost: x\r\n\r\n", ok, 1},
	{"3986-3.3", "two slashes at the beginning", "GET //y/a HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-5", "no value", "GET /a HTTP/1.1\r\nHost: x\r\nA:\r\n\r\n", ok, 1},
	{"9112-5", "white space around a value", "GET /a HTTP/1.1\r\nHost: \t x \t\r\n\r\n", ok, 1},
	{"9112-5", "no colon", "GET /a HTTP/1.1\r\nHost: x\r\nA\r\n\r\n", 400, 0},
	{"9112-5", "no name", "GET /a HTTP/1.1\r\nHost: x\r\n: b\r\n\r\n", 400, 0},
	{"9112-5", "a space in a name", "GET /a HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n", 400, 0},
	{"9112-5.1", "a space before the colon", "GET /a HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\n12345", 400, 0},
	{"9112-5.1", "a tab before the colon", "GET /a HTTP/1.1\r\nHost\t: x\r\n\r\n", 400, 0},
	{"9112-5.2", "a folded line", "GET /a HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400, 0},
	{"9110-5.5", "a NUL in a value", "GET /a HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n", 400, 0},
	{"9110-5.5", "a control character in a value", "GET /a HTTP/1.1\r\nHost: x\r\nA: b\x7fc\r\n\r\n", 400, 0},
	{"9110-5.5", "bytes over 127 in a value", "GET /a HTTP/1.1\r\nHost: x\r\nA: \xc3\xa4\r\n\r\n", ok, 1},
	{"6585-5", "long headers", "GET /a HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("b", 400) + "\r\n\r\n", 431, 0},
	{"6585-5", "long headers without an end", "GET /a HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("b", 4000), 431, 0},
	{"9112-6.1", "chunked", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", ok, 1},
	{"9112-7", "Chunked in any case", "POST /a HTTP/1.1\r\nHost: x\r\ntransfer-encoding:\tChunKed \r\n\r\n5\r\nhello\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n", ok, 2},
	{"9112-6.1", "both lengths", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-6.1", "both lengths, the other way", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400, 0},
	{"9112-6.1", "chunked in HTTP/1.0", "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, 0},
	{"9112-6.1", "gzip, chunked", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, 0},
	{"9112-6.1", "gzip and chunked in two fields", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501, 0},
	{"9112-6.1", "chunked twice", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400, 0},
	{"9112-6.1", "chunked in two fields", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, 0},
	{"9112-6.3", "identity", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n", 400, 0},
	{"9112-6.3", "xchunked", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400, 0},
	{"9112-6.3", "chunked, identity", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400, 0},
	{"9112-6.3", "identity, chunked", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n", 501, 0},
	{"9112-6.3", "an empty coding", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n", 400, 0},
	{"9112-6.3", "chunked with a parameter", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", 400, 0},
	{"9112-6.3", "chunked with a vertical tab", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400, 0},
	{"9112-6.2", "a length", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nHost: x\r\n\r\n", ok, 2},
	{"9112-6.3", "equal lengths", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400, 0},
	{"9112-6.3", "different lengths", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", 400, 0},
	{"9112-6.3", "a list of lengths", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\nhello", 400, 0},
	{"9112-6.3", "a signed length", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello", 400, 0},
	{"9112-6.3", "a negative length", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\nhello", 400, 0},
	{"9112-6.3", "a hexadecimal length", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0x5\r\n\r\nhello", 400, 0},
	{"9112-6.3", "an empty length", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\nhello", 400, 0},
	{"9110-15.5.14", "a length over the limit", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n", 413, 0},
	{"9110-8.6", "a length that overflows", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999999999999\r\n\r\n", 413, 0},
	{"9112-6.3", "no body without a length", "POST /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n", ok, 2},
	{"9112-7.1", "leading zeros of a chunk", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000000005\r\nhello\r\n000\r\n\r\n", ok, 1},
	{"9112-7.1", "a chunk that overflows", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n", 413, 0},
	{"9112-7.1", "chunks over the limit", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3e5\r\n", 413, 0},
	{"9112-7.1", "a chunk that is not hexadecimal", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", 400, 0},
	{"9112-7.1", "a chunk without a size", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhello", 400, 0},
	{"9112-7.1", "a negative chunk", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n", 400, 0},
	{"9112-7.1", "a chunk's size with LF alone", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", 400, 0},
	{"9112-7.1", "a chunk that is longer than it says", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n", 400, 0},
	{"9112-7.1", "a chunk that ends with LF alone", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n", 400, 0},
	{"9112-7.1", "a space after a chunk's size", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n", 400, 0},
	{"9112-7.1.1", "extensions", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b;c=\"d;e\"\r\nhello\r\n0 ;f\r\n\r\n", ok, 1},
	{"9112-7.1.1", "an extension with a bare CR", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;a\rb\r\nhello\r\n0\r\n\r\n", 400, 0},
	{"9112-7.1.1", "a long extension", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;" + strings.Repeat("a", MaxChunkLineBytes+10), 400, 0},
	{"9112-7.1.1", "many extensions", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1;"+strings.Repeat("a", 40)+"\r\nx\r\n", 20), 431, 0},
	{"9112-7.1.2", "a trailer", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\nContent-Length: 7\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n", ok, 2},
	{"9112-7.1.2", "trailers over the header limit", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("A: bcdefghij\r\n", 1000), 431, 0},
	{"9112-7.1.2", "a malformed trailer", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA : b\r\n\r\n", 400, 0},
	{"9112-7.1.2", "no end after the last chunk", "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", open, 0},
	{"9112-8", "half of a body", "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhel", open, 0},
	{"9112-8", "half of a head", "POST /a HTTP/1.1\r\nHost: x\r\nContent-", open, 0},
	{"9112-9.3", "Close in any case", "GET /a HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n", ok, 1},
	{"9110-7.6.1", "close in a list", "GET /a HTTP/1.1\r\nHost: x\r\nConnection: foo , CLOSE\r\n\r\n", ok, 1},
	{"9112-9.3", "keep-alive in HTTP/1.0", "GET /a HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", ok, 1},
	{"9110-10.1.1", "an expectation", "POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\nhello", ok, 1},
	{"9110-10.1.1", "an expectation over the limit", "POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n", 413, 0},
	{"9110-10.1.1", "an expectation of something else", "POST /a HTTP/1.1\r\nHost: x\r\nExpect: 200-ok\r\nContent-Length: 5\r\n\r\nhello", 417, 0},
	{"9110-10.1.1", "an expectation in HTTP/1.0", "POST /a HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello", ok, 1},
	{"9110-7.8", "an upgrade is ignored", "GET /a HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", ok, 1},
}

func TestFramings(t *testing.T) {
	for _, c := range framings {
		in := []byte(c.in)
		whole := transcript(testLimits(), in, len(in))
		for _, size := range []int{1, 2, 3, 7} {
			if cut := transcript(testLimits(), in, size); cut != whole {
				t.Errorf("%s, %s: in pieces of %d\n%sas a whole\n%s", c.section, c.name, size, cut, whole)
			}
		}
		requests, status := strings.Count(whole, "body \""), ok
		if _, text, found := strings.Cut(whole, "fail "); found {
			fmt.Sscan(text, &status)
		} else if strings.Contains(whole, "incomplete") {
			status = open
		}
		if status != c.status || requests != c.requests {
			t.Errorf("%s, %s: %d and %d requests, want %d and %d:\n%s", c.section, c.name, status, requests, c.status, c.requests, whole)
		}
	}
	if len(framings) < 60 {
		t.Errorf("only %d framings", len(framings))
	}
}

func TestWhatAHeadSays(t *testing.T) {
	for in, want := range map[string]string{
		"GET HTTP://y:80?b=/../ HTTP/1.1\r\nHost: x\r\n\r\n":                         "GET /?b=/../ host=y:80 minor=1 length=0 close=false continue=false Host=x",
		"GET http://y/a/b?c HTTP/1.1\r\nHost: x\r\nConnection: a, Close\r\n\r\n":     "GET /a/b?c host=y minor=1 length=0 close=true continue=false Host=x Connection=a, Close",
		"POST /%61 HTTP/1.0\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\nx": "POST /%61? host= minor=0 length=1 close=false continue=false Connection=Keep-Alive Content-Length=1",
		"GET / HTTP/1.0\r\n\r\n": "GET /? host= minor=0 length=0 close=true continue=false",
		"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n": "POST /? host=x minor=1 length=-1 close=false continue=true Host=x Expect=100-continue Transfer-Encoding=chunked",
		"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n":                               "POST /? host=x minor=1 length=0 close=false continue=false Host=x Expect=100-continue",
	} {
		got, _, _ := strings.Cut(transcript(testLimits(), []byte(in), 5), "\n")
		if got != want {
			t.Errorf("%q:\ngot  %s\nwant %s", in, got, want)
		}
	}
}

func TestFieldsAreBounded(t *testing.T) {
	l := testLimits()
	l.HeaderBytes = 1 << 20
	in := "GET /a HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A:\r\n", MaxFields)
	if got := transcript(l, []byte(in), 100); !strings.HasPrefix(got, "fail 431") {
		t.Error(got)
	}
}

// feed passes bytes at a time.
func feed(t *testing.T, p *Parser, in string, now api.Nanos) Kind {
	t.Helper()
	var last Kind
	for b := []byte(in); ; {
		n, e := p.Next(b, now)
		b = b[n:]
		if e.Kind != More {
			last = e.Kind
		}
		if e.Kind == More || e.Kind == Fail {
			return last
		}
	}
}

func TestDeadlines(t *testing.T) {
	var p Parser
	begin := func() { p.Begin(testLimits(), 100*second) }
	want := func(what string, deadline api.Nanos, reason Reason, status int) {
		t.Helper()
		if p.Deadline() != deadline {
			t.Errorf("%s: the deadline is %v s, want %v s", what, p.Deadline()/second, deadline/second)
		}
		if f := p.Expire(deadline - 1); f != nil {
			t.Errorf("%s: expired too early: %s", what, f.Text)
		}
		if f := p.Expire(deadline); f == nil || f.Reason != reason || f.Status != status {
			t.Errorf("%s: expired with %+v", what, f)
		}
		if n, e := p.Next([]byte("x"), deadline); n != 0 || e.Kind != Fail {
			t.Errorf("%s: bytes after the end gave %+v", what, e)
		}
	}
	begin()
	want("silence", 130*second, FirstByte, 0)
	begin()
	feed(t, &p, "G", 110*second)
	for i := range 9 { // a byte each second does not help
		feed(t, &p, "E", (111+api.Nanos(i))*second)
	}
	want("a slow header", 120*second, HeaderTime, 408)
	begin()
	feed(t, &p, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n", 110*second)
	if p.Deadline() != 0 || p.Expire(1e6*second) != nil {
		t.Error("a request that is being answered has a deadline")
	}
	p.Again(200 * second)
	want("silence after an answer", 380*second, Idle, 0)
	begin()
	feed(t, &p, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 110*second)
	want("a body that does not come", 120*second, Rate, 408)
}

// A flow at the rate is never cut, one at half of the rate soon is, and one that stalls after much has come is cut after the
// grace.
func TestPace(t *testing.T) {
	l := testLimits()
	flow := func(perSecond int) (cutAt api.Nanos) {
		var p Pace
		p.Start(l, 0)
		for now := second; now < 3600*second; now += second {
			if now >= p.Deadline(l) {
				return now
			}
			p.Moved(l, perSecond, now)
		}
		return 0
	}
	if at := flow(16 << 10); at != 0 {
		t.Errorf("a flow at the rate was cut after %d s", at/second)
	}
	if at := flow(8 << 10); at < 10*second || at > 21*second {
		t.Errorf("a flow at half of the rate was cut after %d s, want within about 20 s", at/second)
	}
	var p Pace
	p.Start(l, 0)
	p.Moved(l, 60<<20, second)
	if p.Deadline(l) != 11*second {
		t.Errorf("after a burst the deadline is %d s, want 11 s", p.Deadline(l)/second)
	}
}

func FuzzSplits(f *testing.F) {
	for _, c := range framings {
		if len(c.in) < 2000 {
			f.Add([]byte(c.in), uint16(3), uint16(11))
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, a, b uint16) {
		l := testLimits()
		whole := transcript(l, in, len(in)+1)
		if cut := transcript(l, in, int(a), int(b), 1, 5); cut != whole {
			t.Fatalf("%q in pieces of %d, %d, 1, 5 …\n%sas a whole\n%s", in, a, b, cut, whole)
		}
		var p Parser
		p.Begin(l, 0)
		for rest := in; ; {
			n, e := p.Next(rest, 0)
			rest = rest[n:]
			if held := len(p.head.buf); held > MaxLineBytes+l.HeaderBytes+MaxChunkLineBytes+4 {
				t.Fatalf("the parser holds %d bytes", held)
			}
			if len(p.head.fields) > MaxFields {
				t.Fatalf("the parser holds %d fields", len(p.head.fields))
			}
			if e.Kind == End {
				if p.body > l.BodyBytes || p.head.Length > l.BodyBytes {
					t.Fatalf("a body over the limit was taken")
				}
				p.Again(0)
			}
			if e.Kind == More || e.Kind == Fail {
				return
			}
		}
	})
}
