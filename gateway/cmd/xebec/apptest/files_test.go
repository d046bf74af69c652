package apptest

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"net/textproto"
	"strings"
	"testing"
)

// inverting is a model of files: it answers with the file's bytes in reverse, after the header's.
const inverting = `
import xebec

def predict(batch):
    return [b"PNG" + item[::-1] for item in batch]

xebec.serve(predict)
`

// A file reaches a model, and its answer comes back as a file: as a body, and as the forms of a library and of curl.
func TestFiles(t *testing.T) {
	t.Parallel()
	g := serve(t, "--python", python(t))
	dir := newDir(t)
	writeFile(t, dir, "model.py", inverting)
	g.apply(fmt.Sprintf(`
kind: Model
name: invert
inputs:  [{name: picture, dtype: bytes, shape: [], media: image/*}]
outputs: [{name: output, dtype: bytes, shape: [], media: image/png}]
dir: %s
run: {command: [python, model.py]}
`, dir), function("invert", "invert", "slo: 60s"))
	g.awaitReplicas("invert", 1)
	if text := g.must("get", "model", "invert", "-o", "yaml"); !strings.Contains(text, `media: "image/*"`) || !strings.Contains(text, "media: image/png") {
		t.Errorf("the model is shown as\n%s", text)
	}
	large := bytes.Repeat([]byte("0123456789\r\n--"), 50_000)
	reversed := func(b []byte) []byte {
		b = bytes.Clone(b)
		for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
			b[i], b[j] = b[j], b[i]
		}
		return append([]byte("PNG"), b...)
	}
	for _, picture := range [][]byte{[]byte("\x89JPEG"), {}, large} {
		var form bytes.Buffer
		w := multipart.NewWriter(&form)
		part, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="picture"; filename="x.jpg"`}, "Content-Type": {"image/jpeg"}})
		if err != nil {
			t.Fatal(err)
		}
		part.Write(picture)
		w.Close()
		for kind, body := range map[string][]byte{"image/jpeg": picture, w.FormDataContentType(): form.Bytes()} {
			a, err := g.post(bounded(t), "/invert/predict", kind, body, "Accept", "image/png")
			if err != nil || a.Status != 200 || a.Header.Get("Content-Type") != "image/png" || !bytes.Equal(a.Body, reversed(picture)) {
				t.Errorf("%d bytes in a body of type %s: %s (%v)", len(picture), kind, a, err)
			}
		}
		// As curl -F input=@x.jpg sends it.
		const boundary = "------------------------d74496d66958873e"
		form.Reset()
		form.WriteString("--" + boundary + "\r\nContent-Disposition: form-data; name=\"input\"; filename=\"x.jpg\"\r\nContent-Type: image/jpeg\r\n\r\n")
		form.Write(picture)
		form.WriteString("\r\n--" + boundary + "--\r\n")
		a, err := g.post(bounded(t), "/invert/predict", "multipart/form-data; boundary="+boundary, form.Bytes(), "Accept", "image/*")
		if err != nil || a.Status != 200 || !bytes.Equal(a.Body, reversed(picture)) {
			t.Errorf("%d bytes in a form of curl: %s (%v)", len(picture), a, err)
		}
	}
	if a, err := g.post(bounded(t), "/invert/predict", "audio/wav", []byte("x")); err != nil || a.Status != 415 || !strings.Contains(a.Cause, "the model takes image/*") {
		t.Errorf("sound is answered by %s (%v)", a, err)
	}
}
