package http

import (
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/gateway/query/querytest"
)

// TestAnswersInBytes: with Accept, the output itself is the answer, whichever goroutine writes it, compressed or not. A later request of the
// connection without Accept is answered in JSON.
func TestAnswersInBytes(t *testing.T) {
	const octets = "application/octet-stream"
	for _, reply := range []ReplyMode{ReplyAsync, ReplyWait} {
		f := serve(t, querytest.Bytes, echo, func(f *fixture) { f.reply = reply })
		for _, text := range []string{"\x00\xff", "", strings.Repeat("0123456789abcdef", 8<<10)} {
			for _, coding := range []string{"identity", "gzip"} {
				status, header, body := f.post("/f/predict", octets, text, "Accept", octets, "Accept-Encoding", coding)
				if got := string(decoded(t, header.Get("Content-Encoding"), []byte(body))); status != 200 || got != text || header.Get("Content-Type") != octets {
					t.Errorf("%s: %d bytes are answered %d %v with %d bytes", reply, len(text), status, header, len(body))
				}
				if header.Get("Xebec-Query-Id") == "" || header.Get("Xebec-Default") != "false" || header.Get("Xebec-Confidence") != "1" || header.Get("Xebec-Models") != "m@1" {
					t.Errorf("%s: the answer's fields are %v", reply, header)
				}
			}
		}
		if status, header, body := f.post("/f/predict", octets, "x", "Accept", "*/*"); status != 200 || header.Get("Xebec-Query-Id") != "" || !strings.Contains(body, `"output":{"b64":"eA=="}`) {
			t.Errorf("%s: any type is answered %d %v %s", reply, status, header, body)
		}
		if status, _, body := f.post("/f/predict", "application/json", `{"input_batch":["x"]}`, "Accept", octets); status != 406 || !strings.Contains(body, "this request has a batch") {
			t.Errorf("%s: a batch is answered %d %s", reply, status, body)
		}
	}
}
