package http1

import "bytes"

// readLine reads the request line, RFC 9112, 3: three words with one space between them.
func (h *Head) readLine(from, end int) *Failure {
	line := h.buf[from:end]
	first, last := bytes.IndexByte(line, ' '), bytes.LastIndexByte(line, ' ')
	if first < 0 {
		return errRequestLine
	}
	if first == 0 || !isToken(line[:first]) {
		return errMethod
	}
	version := line[last+1:]
	if len(version) != 8 || string(version[:5]) != "HTTP/" || !isDigit(version[5]) || version[6] != '.' || !isDigit(version[7]) {
		return errVersionSyntax
	}
	if first == last {
		return errRequestLine
	}
	if string(line) == preface {
		return errHTTP2
	}
	if version[5] != '1' || version[7] > '1' {
		return errVersion
	}
	h.Minor = int(version[7] - '0')
	h.method = span{uint32(from), uint32(from + first)}
	return h.readTarget(from+first+1, from+last)
}

// preface is the first line of an HTTP/2 connection with prior knowledge, RFC 9113, 3.4.
const preface = "PRI * HTTP/2.0"

// readTarget reads the request target, RFC 9112, 3.2.
func (h *Head) readTarget(from, end int) *Failure {
	target := h.buf[from:end]
	if len(target) == 0 {
		return errRequestLine
	}
	for _, c := range target {
		if c <= ' ' || c >= 0x7f || c == '#' {
			return errTarget
		}
	}
	switch {
	case string(h.Method()) == "CONNECT":
		return errConnect
	case string(target) == "*":
		if string(h.Method()) != "OPTIONS" {
			return errAsterisk
		}
		h.path = span{uint32(from), uint32(end)}
		return nil
	case target[0] != '/':
		var scheme int
		if hasPrefixFold(target, "http://") {
			scheme = len("http://")
		} else if hasPrefixFold(target, "https://") {
			scheme = len("https://")
		} else {
			return errTargetForm
		}
		length := bytes.IndexAny(target[scheme:], "/?")
		if length < 0 {
			length = len(target) - scheme
		}
		host := target[scheme : scheme+length]
		if length == 0 || !isHost(host) {
			return errTargetForm
		}
		h.absolute, h.authority = true, span{uint32(from + scheme), uint32(from + scheme + length)}
		slash := from + scheme - 1
		h.path = span{uint32(slash), uint32(slash + 1)} // an empty path is /, the last byte of the scheme
		from += scheme + length
	}
	stop := end
	if i := bytes.IndexByte(h.buf[from:end], '?'); i >= 0 {
		stop = from + i
		h.query = span{uint32(stop + 1), uint32(end)}
	}
	if stop > from {
		h.path = span{uint32(from), uint32(stop)}
	}
	failure := CheckPath(h.Path())
	h.path.to = h.path.from + uint32(len(TrimSlash(h.Path())))
	return failure
}

// TrimSlash leaves out one slash at the end of a path: clients send it or not, and mean the same.
func TrimSlash(path []byte) []byte {
	if n := len(path); n > 2 && path[n-1] == '/' && path[n-2] != '/' {
		return path[: n-1 : n-1]
	}
	return path
}

// CheckPath refuses paths, still percent-encoded, that a proxy and the gateway could read as different ones. It returns nil for others.
func CheckPath(path []byte) *Failure {
	dots, plain := 0, false // of the segment
	if len(path) > 1 && path[1] == '/' {
		return errEmptySegment
	}
	for i := 1; i <= len(path); i++ {
		if i == len(path) || path[i] == '/' {
			if !plain && (dots == 1 || dots == 2) {
				return errDotSegment
			}
			dots, plain = 0, false
			continue
		}
		c := path[i]
		switch c {
		case '%':
			if i+2 >= len(path) {
				return errPercent
			}
			high, ok := hexDigit(path[i+1])
			low, ok2 := hexDigit(path[i+2])
			if !ok || !ok2 {
				return errPercent
			}
			c = high<<4 | low
			i += 2
			if c == '/' || c == '\\' {
				return errEncodedSlash
			}
			if isControl(c) || c == '\t' {
				return errPathControl
			}
		case '\\':
			return errEncodedSlash
		}
		if c == '.' {
			dots++
		} else {
			plain = true
		}
	}
	return nil
}

// readField reads a field line, RFC 9112, 5.
func readField(buf []byte, from, end int) (field, *Failure) {
	line := buf[from:end]
	if line[0] == ' ' || line[0] == '\t' {
		return field{}, errFold
	}
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return field{}, errFieldName
	}
	if c := line[colon-1]; c == ' ' || c == '\t' {
		return field{}, errSpaceColon
	}
	if !isToken(line[:colon]) {
		return field{}, errFieldName
	}
	a, b := from+colon+1, end
	for a < b && (buf[a] == ' ' || buf[a] == '\t') {
		a++
	}
	for a < b && (buf[b-1] == ' ' || buf[b-1] == '\t') {
		b--
	}
	for _, c := range buf[a:b] {
		if isControl(c) {
			return field{}, errFieldValue
		}
	}
	return field{span{uint32(from), uint32(from + colon)}, span{uint32(a), uint32(b)}}, nil
}

// judge reads the fields that say how the message goes on: RFC 9112, 3.2, 6 and 9, RFC 9110, 10.1.1.
func (h *Head) judge(l *Limits) *Failure {
	lengths, codings, expects, keepAlive := 0, 0, false, false
	var coding *Failure
	for i := range h.fields {
		name, value := h.Field(i)
		switch len(name) { // most fields are none of these
		case len("Host"):
			if equalFold(name, "host") {
				if h.host >= 0 {
					return errHostTwice
				}
				if h.host = i; len(value) == 0 || !isHost(value) { // RFC 9110, 4.2.1: an http URI has a host
					return errHost
				}
			}
		case len("Expect"):
			if equalFold(name, "expect") {
				if !equalFold(value, "100-continue") {
					return errExpect
				}
				expects = true
			}
		case len("Connection"):
			if equalFold(name, "connection") {
				for token := range bytes.SplitSeq(value, comma) {
					token = bytes.Trim(token, " \t")
					h.Close = h.Close || equalFold(token, "close")
					keepAlive = keepAlive || equalFold(token, "keep-alive")
				}
			}
		case len("Content-Length"):
			if equalFold(name, "content-length") {
				lengths++
				if f := h.readLength(value, l); f != nil {
					return f
				}
			}
		case len("Transfer-Encoding"):
			if equalFold(name, "transfer-encoding") {
				codings, coding = readCodings(value, codings, coding)
			}
		}
	}
	switch {
	case h.host < 0 && h.Minor == 1:
		return errHostMissing
	case lengths > 0 && codings > 0:
		return errLengthAndCodes
	case lengths > 1:
		return errLengthTwice
	case codings > 0 && h.Minor == 0:
		return errCodingOld
	case coding != nil:
		return coding
	case h.Length > l.BodyBytes:
		return errBodyTooLarge
	}
	if codings > 0 {
		h.Length = -1
	}
	h.Close = h.Close || h.Minor == 0 && !keepAlive
	h.Continue = expects && h.Minor == 1 && h.Length != 0
	return nil
}

// comma separates the values of a list.
var comma = []byte(",")

func (h *Head) readLength(value []byte, l *Limits) *Failure {
	if len(value) == 0 {
		return errLength
	}
	n := int64(0)
	for _, c := range value {
		if c == ',' {
			return errLengthTwice
		}
		if !isDigit(c) {
			return errLength
		}
		if n <= l.BodyBytes { // larger numbers are refused, whatever follows, unless it is malformed
			n = n*10 + int64(c-'0')
		}
	}
	h.Length = n
	return nil
}

// readCodings adds a Transfer-Encoding's codings to those before. RFC 9112, 6.1 and 6.3: a request whose last coding is not
// chunked has no known length (400); a coding before it is not implemented (501).
func readCodings(value []byte, n int, f *Failure) (int, *Failure) {
	for coding := range bytes.SplitSeq(value, comma) {
		chunked := equalFold(bytes.Trim(coding, " \t"), "chunked")
		switch {
		case !chunked:
			f = errCodings
		case n == 0:
			f = nil
		case f == nil || f == errCodingTwice:
			f = errCodingTwice
		default:
			f = errCodingUnknown
		}
		n++
	}
	return n, f
}
