package query

import (
	"sort"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect/oip"
)

// directDeadline is the deadline of requests that address a model, which has no latency objective of its own.
const directDeadline = api.Nanos(30 * time.Second)

// extensions are the parts of the Open Inference Protocol beyond its core that are served.
var extensions = []string{"binary_tensor_data"}

// renderOIP writes the protocol's answer. A request is one tensor of several queries: if one has no output, none has.
func renderOIP(c *call) {
	c.code = c.worst()
	c.status = c.code.HTTPStatus()
	c.jsonLen = 0
	if c.code != api.OK {
		c.out = oip.AppendError(c.out[:0], c.code.Reason())
		c.retryAfter = c.status == 503
		return
	}
	body, jsonLen, err := oip.AppendResponse(c.out[:0], c.model.ID.Name, c.model.ID.Version, &c.oip, &c.model.Signature, len(c.items), c.output)
	if err != nil {
		e := asError(err)
		c.code, c.status = e.Code, e.Code.HTTPStatus()
		c.out = oip.AppendError(c.out[:0], e.Message)
		return
	}
	c.out, c.jsonLen = body, jsonLen
}

func (c *call) output(query, tensor int) *api.Value { return &c.items[query].outputs[tensor] }

func appendServerMetadata(dst []byte, version string) []byte {
	return oip.AppendServerMetadata(dst, "xebec", version, extensions)
}

func appendModelMetadata(dst []byte, m *Model, t *Table) []byte {
	var versions []string
	for id, v := range t.Versions {
		if id.Name == m.ID.Name && id == v.ID { // and no label
			versions = append(versions, id.Version)
		}
	}
	sort.Slice(versions, func(i, j int) bool { return api.CompareVersions(versions[i], versions[j]) < 0 })
	return oip.AppendModelMetadata(dst, m.ID.Name, versions, "xebec", &m.Signature)
}

func appendErrorOIP(dst []byte, message string) []byte { return oip.AppendError(dst, message) }
