package http1

// Reason groups failures for counting.
type Reason uint8

// The reasons for which a connection ends without the answer that its client wanted.
const (
	Framing    Reason = iota // the request is malformed or not supported
	TooLarge                 // a limit of sizes is exceeded
	FirstByte                // the connection's first byte has not come in time,
	HeaderTime               // or the rest of a head,
	Rate                     // or a body came too slowly
	NoRoom                   // for callers: they have no memory for the body,
	Unread                   // or the client does not take its answer
	Idle                     // no further request has come in time: a usual end
	Incomplete               // the client closed within a request
	HTTP2                    // not a failure for callers that speak HTTP/2: the connection begins with its preface
)

// Failure is why a request is refused. Failures are values of this package and are never changed.
type Failure struct {
	Status int // of the answer; 0: the connection closes without one
	Reason Reason
	Text   string // what was wrong, what was expected
}

func bad(text string) *Failure { return &Failure{400, Framing, text} }

var (
	errLineTooLong    = &Failure{414, TooLarge, "the request line has more than 16384 bytes"}
	errHeaderTooLong  = &Failure{431, TooLarge, "the header fields, trailers and chunk extensions have more bytes than the limit"}
	errTooManyFields  = &Failure{431, TooLarge, "the request has more than 256 header fields"}
	errBodyTooLarge   = &Failure{413, TooLarge, "the body is larger than the limit (--max-body)"}
	errChunkLineLong  = &Failure{400, TooLarge, "the line with a chunk's size has more than 4096 bytes"}
	errFirstByte      = &Failure{0, FirstByte, "no request came in time (--first-byte-timeout)"}
	errHeaderTime     = &Failure{408, HeaderTime, "the request's header did not arrive in time (--header-timeout)"}
	errRate           = &Failure{408, Rate, "the body arrived more slowly than the lowest rate (--min-rate)"}
	errIdle           = &Failure{0, Idle, "no further request came in time (--idle-timeout)"}
	errIncomplete     = &Failure{0, Incomplete, "the client closed the connection within a request"}
	errBareLF         = bad("a line ends with LF alone: lines end with CR LF")
	errBareCR         = bad("a line has a CR that is not followed by LF")
	errRequestLine    = bad("the request line is malformed: expected METHOD SP TARGET SP HTTP/1.1")
	errMethod         = bad("the method is not a token")
	errVersionSyntax  = bad("the request line does not end with a version: expected HTTP/1.1 or HTTP/1.0")
	errVersion        = &Failure{505, Framing, "the protocol version is not supported: expected HTTP/1.1 or HTTP/1.0"}
	errHTTP2          = &Failure{505, HTTP2, "HTTP/2 is not spoken here: expected HTTP/1.1"}
	errTarget         = bad("the request target has a byte that must be percent-encoded, or a fragment")
	errTargetForm     = bad("the request target is neither a path nor an http or https URI with a host")
	errAsterisk       = bad("only OPTIONS has the target *")
	errConnect        = &Failure{501, Framing, "CONNECT is not implemented: the gateway is not a proxy"}
	errPercent        = bad("the path has a % that two hexadecimal digits do not follow")
	errEncodedSlash   = bad("the path has an encoded slash or backslash, or a backslash: a proxy may read it as another path")
	errDotSegment     = bad("the path has a segment . or ..: a proxy may read it as another path")
	errEmptySegment   = bad("the path begins with //: a proxy may read it as another path")
	errPathControl    = bad("the path has an encoded control character")
	errFold           = bad("a header line begins with white space: folded lines are not accepted")
	errFieldName      = bad("a header line has no valid name before its colon")
	errSpaceColon     = bad("white space stands before the colon of a header line")
	errFieldValue     = bad("a header value has a control character")
	errHostMissing    = bad("an HTTP/1.1 request needs one Host header field, and has none")
	errHostTwice      = bad("the request has several Host header fields: send one")
	errHost           = bad("the Host header field is not a host with an optional port")
	errLength         = bad("Content-Length is not a decimal number")
	errLengthTwice    = bad("the request has several Content-Length header fields or values: send one")
	errLengthAndCodes = bad("the request has both Content-Length and Transfer-Encoding: send one of them")
	errCodings        = bad("the last transfer coding is not chunked, so the body's length is unknown: the one supported Transfer-Encoding is chunked")
	errCodingUnknown  = &Failure{501, Framing, "only the transfer coding chunked alone is supported"}
	errCodingTwice    = bad("chunked is applied twice")
	errCodingOld      = bad("HTTP/1.0 has no Transfer-Encoding")
	errExpect         = &Failure{417, Framing, "the expectation is not supported: expected 100-continue"}
	errChunkSize      = bad("the size of a chunk is not a hexadecimal number")
	errChunkEnd       = bad("a chunk's data is not followed by CR LF")
	errChunkExtension = bad("a chunk's extension has a control character")
)
