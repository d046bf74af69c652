package quality

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/klauspost/compress/zstd"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// Limits of a file of recorded queries.
const (
	// MaxCases and MaxBytes are the defaults of [ReadCases]. More queries add little information, and all are held in
	// memory.
	MaxCases = 100_000   //xebec:limit queries in a file of recorded queries
	MaxBytes = 256 << 20 //xebec:limit its text when decompressed, and its tensors
	// MaxLineBytes is the default limit of a request's body.
	MaxLineBytes = 64 << 20 //xebec:limit one line of it
	// maxWindowBytes is the zstd decoder's own default.
	maxWindowBytes = 128 << 20
)

// byteOrderMark is written by some editors at the beginning of UTF-8 text. It is ignored.
const byteOrderMark = "\ufeff"

// Case is one recorded query.
type Case struct {
	// Line is the query's line in the file, from 1.
	Line   int
	Inputs []api.Value
	// Label is the right answer, with as many values as the model has outputs; nil if the file has none.
	Label []api.Value
}

// ReadCases reads a file of recorded queries for models of a signature: one JSON object a line, {"input": …} or
// {"input": …, "label": …}, in the form that callers send. Blank lines, and a byte order mark at the beginning, are
// ignored. A file whose name ends in .zst is decompressed. It is an error if the file has no queries, more than most
// queries (0 means [MaxCases]), or more than maxBytes of text or of tensors (0 means [MaxBytes]). Errors begin with
// "path:line: " if they concern a line, and with "path: " otherwise.
func ReadCases(path string, sig api.Signature, most int, maxBytes int64) ([]Case, error) {
	// O_NONBLOCK: opening a pipe must not wait for a writer. A pipe is then rejected.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fileError(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fileError(path, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file: expected a file of queries", path)
	}
	if !strings.HasSuffix(path, ".zst") {
		return readCases(path, f, sig, most, maxBytes)
	}
	return readCompressed(path, f, sig, most, maxBytes)
}

// fileError removes the name of the system call.
func fileError(path string, err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		err = of.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}

func readCompressed(path string, from io.Reader, sig api.Signature, most int, maxBytes int64) ([]Case, error) {
	z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindowBytes))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer z.Close()
	return readCases(path, z, sig, most, maxBytes)
}

// reader reads the lines of one file.
type reader struct {
	path     string
	sig      api.Signature
	lines    *bufio.Reader
	long     []byte // a line that does not fit into the buffer of lines
	at       int    // current line
	left     int64  // remaining bytes of text
	dataLeft int64  // remaining bytes of tensors
	maxBytes int64

	members  tensorjson.Reader
	request  tensorjson.Request
	feedback tensorjson.Feedback
	inputs   []api.Value // scratch, like label
	label    []api.Value
}

// Next implements the parsers' storage: one query a line.
func (r *reader) Next() ([]api.Value, error) { return r.inputs, nil }

func readCases(path string, from io.Reader, sig api.Signature, most int, maxBytes int64) ([]Case, error) {
	if most <= 0 {
		most = MaxCases
	}
	if maxBytes <= 0 {
		maxBytes = MaxBytes
	}
	r := &reader{
		path: path, sig: sig, lines: bufio.NewReaderSize(from, 64<<10), left: maxBytes, dataLeft: maxBytes, maxBytes: maxBytes,
		inputs: make([]api.Value, len(sig.Inputs)), label: make([]api.Value, len(sig.Outputs)),
	}
	if head, _ := r.lines.Peek(len(byteOrderMark)); string(head) == byteOrderMark { // a read error is returned again with the first line
		_, _ = r.lines.Discard(len(byteOrderMark)) // cannot fail: the bytes are buffered
	}
	var cases []Case
	for {
		line, err := r.line()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimLeft(line, " \t\r")) == 0 {
			continue
		}
		if len(cases) == most {
			return nil, r.errorf("a file may have at most %d queries: remove some", most)
		}
		c, err := r.parse(line)
		if err != nil {
			return nil, err
		}
		cases = append(cases, c)
	}
	if len(cases) == 0 {
		return nil, fmt.Errorf("%s: has no queries: expected lines of {\"input\": …}", path)
	}
	return cases, nil
}

func (r *reader) errorf(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", r.path, r.at, fmt.Errorf(format, args...))
}

// line returns the next line without its newline, valid until the next call, or io.EOF.
func (r *reader) line() ([]byte, error) {
	r.at++
	r.long = r.long[:0]
	for {
		part, err := r.lines.ReadSlice('\n')
		if r.left -= int64(len(part)); r.left < 0 {
			return nil, fmt.Errorf("%s: has more than %d bytes of text: remove some queries", r.path, r.maxBytes)
		}
		if len(r.long)+len(part) > MaxLineBytes {
			return nil, r.errorf("has more than %d bytes, the limit of a request", MaxLineBytes)
		}
		if len(r.long) > 0 || err == bufio.ErrBufferFull {
			r.long = append(r.long, part...)
			part = r.long
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == nil:
			return part[:len(part)-1], nil
		case err == io.EOF && len(part) > 0:
			return part, nil
		case err == io.EOF:
			return nil, io.EOF
		case err == io.ErrUnexpectedEOF:
			return nil, r.errorf("the compressed file is incomplete: copy it again")
		}
		return nil, fmt.Errorf("%s:%d: cannot be read: %w", r.path, r.at, err)
	}
}

// parse reads a line like the body of a call: as feedback if it has a label, as a request otherwise.
func (r *reader) parse(line []byte) (Case, error) {
	labelled, err := r.checkMembers(line)
	if err == nil {
		if labelled {
			if err = r.feedback.Parse(line, r.sig.Inputs, r, 1); err == nil {
				err = r.feedback.ParseLabel(0, r.sig.Outputs, -1, r.label)
			}
		} else {
			err = r.request.Parse(line, r.sig.Inputs, r)
		}
	}
	if err != nil {
		return Case{}, r.errorf("%w", err)
	}
	c := Case{Line: r.at}
	if c.Inputs, err = r.copyOut(r.inputs); err == nil && labelled {
		c.Label, err = r.copyOut(r.label)
	}
	return c, err
}

// checkMembers checks that a line has only the two permitted members.
func (r *reader) checkMembers(line []byte) (labelled bool, err error) {
	m := &r.members
	m.Reset(line)
	var input, label bool
	err = m.Members(func(name []byte) error {
		switch string(name) {
		case "input":
			if input {
				return m.Errorf("duplicate member \"input\"")
			}
			input = true
		case "label":
			if label {
				return m.Errorf("duplicate member \"label\"")
			}
			label = true
			labelled = m.Peek() != 'n' // as in feedback, null means no label
		default:
			return m.Errorf("unknown member %.40q: a recorded query has only \"input\" and \"label\"", name)
		}
		return m.Skip()
	})
	if err != nil {
		return false, err
	}
	if !input {
		return false, m.Errorf("expected a member \"input\"")
	}
	return labelled, m.End()
}

// copyOut copies values out of the scratch buffers, without their spare capacity.
func (r *reader) copyOut(values []api.Value) ([]api.Value, error) {
	size := 0
	for i := range values {
		size += len(values[i].Data)
	}
	if r.dataLeft -= int64(size); r.dataLeft < 0 {
		return nil, r.errorf("the queries up to this line take more than %d bytes as tensors: remove some", r.maxBytes)
	}
	all := make([]byte, 0, size)
	kept := make([]api.Value, len(values))
	for i := range values {
		at := len(all)
		all = append(all, values[i].Data...)
		kept[i].Data = all[at:len(all):len(all)]
		if len(values[i].Dims) > 0 {
			kept[i].Dims = slices.Clone(values[i].Dims)
		}
	}
	return kept, nil
}
