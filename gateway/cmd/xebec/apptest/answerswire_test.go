package apptest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/cockroachdb/datadriven"
)

// wire is a connection to one of the ports. The requests of a file share it as long as the gateway keeps it open.
type wire struct {
	conn net.Conn
	r    *bufio.Reader
}

func (r *recorder) dial(port string) *wire {
	if w := r.wires[port]; w != nil {
		return w
	}
	var d net.Dialer
	ctx := bounded(r.t)
	conn, err := d.DialContext(ctx, "tcp", r.address(port))
	if err != nil {
		r.t.Fatal(err)
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		r.t.Fatal(err)
	}
	w := &wire{conn, bufio.NewReader(conn)}
	r.wires[port] = w
	return w
}

// ask sends the request of a directive and returns the answers, and what happened to the connection unless it stays open. Arguments of the
// directive:
//
//	raw        the input is sent as it is: lines end with CRLF, and \r \n \t \\ \xNN are escapes
//	escaped    head and body have these escapes
//	answers=N  wait for N answers
//	end        the request is incomplete, and the client shuts its side of the connection
//	omit-body  do not record the body
//	omit=NAME  do not record the members of that name
//	later      do not wait for the answer: the directive "collect" returns it
func (r *recorder) ask(d *datadriven.TestData) string {
	request := r.request(d)
	w := r.dial(d.Cmd)
	_, _ = w.conn.Write(request) // the gateway may answer and close before it has read everything
	if d.HasArg("later") {
		r.later = w
		delete(r.wires, d.Cmd)
		return ""
	}
	if d.HasArg("end") {
		_ = w.conn.(*net.TCPConn).CloseWrite()
	}
	count := 1
	if d.HasArg("answers") {
		d.ScanArgs(r.t, "answers", &count)
	}
	r.names.omitted = ""
	if d.HasArg("omit") {
		d.ScanArgs(r.t, "omit", &r.names.omitted)
	}
	var out []string
	var last httpAnswer
	for range count {
		var err error
		if last, err = readAnswer(w.r, bytes.HasPrefix(request, []byte("HEAD "))); err != nil {
			return strings.Join(append(out, r.closed(d.Cmd, "closed without an answer", err)), "\n")
		}
		last.omitted = d.HasArg("omit-body")
		out = append(out, last.text(d.Cmd, r.names))
	}
	if fate := r.fate(d.Cmd, w, last.closes()); fate != "" {
		out = append(out, fate)
	}
	return strings.Join(out, "\n")
}

// collect returns the answer to the request that was sent with "later".
func (r *recorder) collect() string {
	defer r.later.conn.Close()
	a, err := readAnswer(r.later.r, false)
	if err != nil {
		return err.Error()
	}
	return a.text("function", r.names)
}

// fate returns what happened to the connection after the last answer; empty: it is open. If the answer did not announce the end of the
// connection, one more request on it shows.
func (r *recorder) fate(port string, w *wire, announced bool) string {
	if announced {
		rest, err := io.ReadAll(w.r)
		if len(rest) > 0 {
			return r.closed(port, fmt.Sprintf("closed after %q", r.names.normalise(string(rest))), err)
		}
		return r.closed(port, "closed", err)
	}
	_, _ = fmt.Fprintf(w.conn, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", r.address(port))
	switch a, err := readAnswer(w.r, false); {
	case err != nil:
		return r.closed(port, "closed without notice", err)
	case a.status != "HTTP/1.1 200 OK":
		return r.closed(port, "the next request on the connection is answered "+a.status, nil)
	}
	return ""
}

// closed forgets a connection. A reset counts as an end; a deadline is a failure of the test.
func (r *recorder) closed(port, what string, err error) string {
	if isTimeout(err) {
		r.t.Fatalf("the %s port has neither answered nor closed the connection within %v", port, patience)
	}
	r.wires[port].conn.Close()
	delete(r.wires, port)
	return "(" + what + ")"
}

// request renders the request of a directive: a line with method, path and optionally the HTTP version, headers, an empty line, the body. Host
// and Content-Length are added where they are missing.
func (r *recorder) request(d *datadriven.TestData) []byte {
	input := repeat(r.names.expand(d.Input))
	if d.HasArg("raw") {
		text := unescape(strings.ReplaceAll(input, "\n", "\r\n"))
		if !strings.Contains(text, "\r\n\r\n") && !strings.Contains(text, "\n\n") && !d.HasArg("end") {
			text += "\r\n\r\n" // datadriven trims the input
		}
		return []byte(text)
	}
	head, body, _ := strings.Cut(input, "\n\n")
	if d.HasArg("escaped") {
		head, body = unescape(head), unescape(body)
	}
	lines := strings.Split(head, "\n")
	if !strings.Contains(lines[0], " HTTP/") {
		lines[0] += " HTTP/1.1"
	}
	has := func(name string) bool {
		return slices.ContainsFunc(lines[1:], func(l string) bool { return strings.HasPrefix(strings.ToLower(l), name+":") })
	}
	if !has("host") {
		lines = append(lines, "Host: "+r.address(d.Cmd))
	}
	if (body != "" || strings.HasPrefix(lines[0], "P")) && !has("content-length") && !has("transfer-encoding") {
		lines = append(lines, fmt.Sprintf("Content-Length: %d", len(body)))
	}
	return []byte(strings.Join(lines, "\r\n") + "\r\n\r\n" + body)
}

var repetition = regexp.MustCompile(`\{\{(\d+) \* (.+?)\}\}`)

// repeat expands {{1000 * x}}.
func repeat(text string) string {
	return repetition.ReplaceAllStringFunc(text, func(match string) string {
		m := repetition.FindStringSubmatch(match)
		n, _ := strconv.Atoi(m[1]) // digits
		return strings.Repeat(m[2], n)
	})
}

var escape = regexp.MustCompile(`\\(x[0-9a-fA-F]{2}|[rnt\\])`)

func unescape(text string) string {
	return escape.ReplaceAllStringFunc(text, func(match string) string {
		switch match[1] {
		case 'r':
			return "\r"
		case 'n':
			return "\n"
		case 't':
			return "\t"
		case '\\':
			return `\`
		}
		n, _ := strconv.ParseUint(match[2:], 16, 8) // two hexadecimal digits
		return string([]byte{byte(n)})
	})
}

// httpAnswer is an answer as it came over the wire: the names of headers are as the gateway spells them.
type httpAnswer struct {
	status    string
	headers   []string // "Name: value"
	body      []byte
	unbounded bool // the body ended with the connection
	omitted   bool // do not record the body
}

// header returns the value of a header, empty if there is none.
func (a httpAnswer) header(name string) string {
	for _, h := range a.headers {
		if n, value, _ := strings.Cut(h, ": "); strings.EqualFold(n, name) {
			return value
		}
	}
	return ""
}

// closes reports whether the gateway announced the end of the connection.
func (a httpAnswer) closes() bool {
	return a.unbounded || strings.EqualFold(a.header("Connection"), "close")
}

// readAnswer reads one answer. Provisional answers before it are put in front of its status.
func readAnswer(r *bufio.Reader, head bool) (a httpAnswer, err error) {
	if a.status, err = readLine(r); err != nil {
		return a, err
	}
	for {
		line, err := readLine(r)
		if err != nil {
			return a, err
		}
		if line == "" {
			break
		}
		a.headers = append(a.headers, line)
	}
	if strings.HasPrefix(a.status, "HTTP/1.1 1") {
		final, err := readAnswer(r, head)
		final.status = strings.Join(append([]string{a.status}, a.headers...), "\n") + "\n" + final.status
		return final, err
	}
	length := a.header("Content-Length")
	switch {
	case head || strings.Contains(a.status, " 204 ") || strings.Contains(a.status, " 304 "):
	case strings.EqualFold(a.header("Transfer-Encoding"), "chunked"):
		if a.body, err = io.ReadAll(httputil.NewChunkedReader(r)); err == nil {
			_, err = readLine(r) // the empty line after the last chunk
		}
	case length != "":
		n, convErr := strconv.Atoi(length)
		if convErr != nil {
			return a, convErr
		}
		a.body = make([]byte, n)
		_, err = io.ReadFull(r, a.body)
	default:
		a.unbounded = true
		a.body, err = io.ReadAll(r)
	}
	return a, err
}

func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), nil
}

// usual are the headers of most answers of a port. A recording does not show them; it says which of them are missing.
var usual = map[string][]string{
	"function": {"Content-Length: <length>", "Content-Type: application/json", "Date: <date>", "Server: xebec", "X-Request-Id: <request>"},
	"admin": {
		"Cache-Control: no-store", "Content-Length: <length>", "Content-Type: application/json", "Date: <date>", "Server: xebec",
		"X-Content-Type-Options: nosniff", "X-Request-Id: <request>",
	},
}

// text renders the answer for the recording: status, sorted headers, body.
func (a httpAnswer) text(port string, names *placeholders) string {
	var headers []string
	for _, h := range a.headers {
		name, value, _ := strings.Cut(h, ": ")
		switch {
		case strings.EqualFold(name, "Date"):
			value = "<date>"
		case strings.EqualFold(name, "Content-Length") && value == strconv.Itoa(len(a.body)):
			value = "<length>"
		}
		headers = append(headers, name+": "+names.normalise(value))
	}
	for _, h := range usual[port] {
		if i := slices.Index(headers, h); i >= 0 {
			headers = slices.Delete(headers, i, i+1)
		} else {
			headers = append(headers, "(without "+h+")")
		}
	}
	sort.Strings(headers)
	out := append([]string{a.status}, headers...)
	if len(a.body) > 0 && a.omitted {
		out = append(out, "(a body)")
	} else if len(a.body) > 0 {
		jsonLen, _ := strconv.Atoi(a.header("Inference-Header-Content-Length")) // 0: none
		out = append(out, names.body(a.body, jsonLen))
	}
	return strings.Join(out, "\n")
}
