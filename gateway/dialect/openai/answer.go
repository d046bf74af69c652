package openai

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// Settled renders the answer.
func (c *call) Settled() api.Code {
	if s := c.Streamed(); s != nil {
		return s.Settled()
	}
	return c.settled()
}

// settled renders an answer that is no stream, of a model that answers at once. If one query has neither an output nor a default, the request fails.
func (c *call) settled() api.Code {
	a, code := &c.Answer, c.Code()
	if c.Refused() {
		return code
	}
	if i := c.Failed(); i >= 0 {
		q := c.Query(i)
		c.fail(a, q.Code, q.Reason())
		return code
	}
	a.Reset(200)
	if c.kind == embeddings {
		a.Body = c.appendEmbeddings(a.Body)
	} else {
		a.Body = c.appendHead(a.Body, false)
		for i := range c.Len() {
			if i > 0 {
				a.Body = append(a.Body, ',')
			}
			values, _ := c.Outputs(i)
			c.words += words(values[0].Data)
			a.Body = c.appendChoice(a.Body, i, appendInner(nil, values[0].Data))
		}
		a.Body = append(c.appendUsage(append(a.Body, `],"usage":`...), c.words), '}')
	}
	c.FactFields()
	return code
}

func (c *call) fail(a *dialect.Answer, code api.Code, why string) {
	a.Reset(code.HTTPStatus())
	a.RetryAfter(c.RetryAfter())
	a.Body = appendError(a.Body, code, why)
}

// appendHead appends what all answers with choices begin with. parts are the chunks of a stream.
func (c *call) appendHead(dst []byte, parts bool) []byte {
	id, object := `{"id":"cmpl-`, "text_completion"
	switch {
	case c.kind == chat && parts:
		id, object = `{"id":"chatcmpl-`, "chat.completion.chunk"
	case c.kind == chat:
		id, object = `{"id":"chatcmpl-`, "chat.completion"
	}
	dst = strconv.AppendUint(append(dst, id...), c.Query(0).ID, 10)
	dst = append(append(dst, `","object":"`...), object...)
	dst = strconv.AppendInt(append(dst, `","created":`...), c.created, 10)
	dst = tensorjson.AppendString(append(dst, `,"model":`...), c.name)
	return append(dst, `,"choices":[`...)
}

// appendChoice appends a whole choice. text is the inside of a JSON string.
func (c *call) appendChoice(dst []byte, index int, text []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(index), 10)
	if c.kind == chat {
		dst = append(append(dst, `,"message":{"role":"assistant","content":"`...), text...)
		return append(dst, `"},"logprobs":null,"finish_reason":"stop"}`...)
	}
	dst = append(append(dst, `,"text":"`...), text...)
	return append(dst, `","logprobs":null,"finish_reason":"stop"}`...)
}

// appendInner appends a text as the inside of a JSON string.
func appendInner(dst, text []byte) []byte {
	at := len(dst)
	dst = tensorjson.AppendString(dst, text)
	return append(dst[:at], dst[at+1:len(dst)-1]...)
}

func (c *call) appendUsage(dst []byte, completion int) []byte {
	dst = strconv.AppendInt(append(dst, `{"prompt_tokens":`...), int64(c.parsed.Words), 10)
	if c.kind != embeddings {
		dst = strconv.AppendInt(append(dst, `,"completion_tokens":`...), int64(completion), 10)
	}
	return append(strconv.AppendInt(append(dst, `,"total_tokens":`...), int64(c.parsed.Words+completion), 10), '}')
}

func (c *call) appendEmbeddings(dst []byte) []byte {
	spec := &c.Model().Signature.Outputs[0]
	dst = append(dst, `{"object":"list","data":[`...)
	for i := range c.Len() {
		if i > 0 {
			dst = append(dst, ',')
		}
		values, _ := c.Outputs(i)
		dst = strconv.AppendInt(append(dst, `{"object":"embedding","index":`...), int64(i), 10)
		dst = append(dst, `,"embedding":`...)
		if c.parsed.Base64 {
			dst = append(base64.StdEncoding.AppendEncode(append(dst, '"'), float32s(spec.DType, values[0].Data)), '"')
		} else {
			dst = tensorjson.AppendValue(dst, *spec, values[0])
		}
		dst = append(dst, '}')
	}
	dst = tensorjson.AppendString(append(dst, `],"model":`...), c.name)
	return append(c.appendUsage(append(dst, `,"usage":`...), 0), '}')
}

// float32s returns floats as little-endian float32.
func float32s(dtype api.DType, data []byte) []byte {
	if dtype == api.Float32 {
		return data
	}
	size := dtype.Size()
	out := make([]byte, 0, len(data)/size*4)
	for ; len(data) >= size; data = data[size:] {
		var f float32
		switch dtype {
		case api.Float64:
			f = float32(math.Float64frombits(binary.LittleEndian.Uint64(data)))
		case api.Float16:
			f = api.Float16ToFloat32(binary.LittleEndian.Uint16(data))
		default:
			f = api.BFloat16ToFloat32(binary.LittleEndian.Uint16(data))
		}
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(f))
	}
	return out
}
