package native

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

var image = api.Signature{
	Inputs:  []api.TensorSpec{{Name: "picture", DType: api.Bytes, Media: "image/*"}},
	Outputs: []api.TensorSpec{{Name: "output", DType: api.Bytes, Media: "image/png"}},
}

func echo(it *scheduler.Item) { querytest.End(it, api.OK, it.Inputs[0].Data) }

// TestMediaTypesOfBodies: a body of the declared media type is the input, one of another type is 415, and Accept asks for the output as
// itself.
func TestMediaTypesOfBodies(t *testing.T) {
	f := serve(t, image, echo)
	for _, c := range []struct {
		kind, accept, body string
		status             int
		answer, want       string
	}{
		{"image/png", "image/png", "\x89PNG", 200, "image/png", "\x89PNG"},
		{"Image/JPEG; q=1", "image/*", "jpeg", 200, "image/png", "jpeg"},
		{octetStream, octetStream, "x", 200, octetStream, "x"},
		{"image/png", "", "x", 200, "application/json", `"output":{"b64":"eA=="}`},
		{"image/png", "image/jpeg", "x", 200, "application/json", `"output":{"b64":"eA=="}`},
		{"application/json", "image/png", `{"input":{"b64":"eA=="}}`, 200, "image/png", "x"},
		{"application/json", "image/png", `{"input_batch":["x"]}`, 406, "application/json", "an answer in image/png is the output of one query"},
		{"audio/wav", "", "x", 415, "application/json", "a body of type audio/wav: the model takes image/*, or application/octet-stream without a declared type"},
		{"text/plain", "", "x", 415, "application/json", "the model takes image/*"},
	} {
		a, body := f.post(predict, c.body, "Content-Type", c.kind, "Accept", c.accept)
		if a.Status != c.status || a.ContentType != c.answer || !strings.Contains(body, c.want) {
			t.Errorf("%s, Accept %s: %d %s %s, want %d %s %s", c.kind, c.accept, a.Status, a.ContentType, body, c.status, c.answer, c.want)
		}
	}
	pdf := serve(t, api.Signature{Inputs: []api.TensorSpec{{Name: "x", DType: api.Bytes, Media: "application/pdf"}}, Outputs: querytest.Bytes.Outputs}, echo)
	if a, body := pdf.post(predict, "%PDF", "Content-Type", "application/pdf"); a.Status != 200 {
		t.Errorf("a declared type beside images: %d %s", a.Status, body)
	}
}

// form makes a body of parts: header fields, then the data.
func formBody(parts ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(parts); i += 2 {
		b.WriteString("--B\r\n" + parts[i] + "\r\n\r\n" + parts[i+1] + "\r\n")
	}
	return b.String() + "--B--\r\n"
}

func named(name string, more ...string) string {
	return `Content-Disposition: form-data; name="` + name + `"` + strings.Join(more, "")
}

const ofB = "multipart/form-data; boundary=B"

// TestForms: parts are inputs by their names, or options.
func TestForms(t *testing.T) {
	two := api.Signature{
		Inputs:  []api.TensorSpec{{Name: "picture", DType: api.Bytes, Media: "image/png"}, {Name: "size", DType: api.Int32, Shape: []int64{2}}},
		Outputs: querytest.Bytes.Outputs,
	}
	both := func(it *scheduler.Item) {
		querytest.End(it, api.OK, append(append([]byte(nil), it.Inputs[0].Data...), it.Inputs[1].Data...))
	}
	text := api.Signature{Inputs: []api.TensorSpec{{Name: "words", DType: api.String}}, Outputs: querytest.Bytes.Outputs}
	png := "\r\nContent-Type: image/png"
	large := strings.Repeat("x\r\n--BB", 8<<10)
	for _, c := range []struct {
		name   string
		sig    api.Signature
		submit func(*scheduler.Item)
		body   string
		status int
		want   string
	}{
		{"a file", image, echo, formBody(named("input", `; filename="x.png"`, png), "\x00\xff\r\n"), 200, `"output":{"b64":"AP8NCg=="}`},
		{"by its own name", image, echo, formBody(named("picture"), "x"), 200, `{"b64":"eA=="}`},
		{"without a boundary in quotes", image, echo, "--B \t\r\n" + named("input") + "\r\n\r\nx\r\n--Bx\r\n--B--", 200, `{"b64":"eA0KLS1CeA=="}`},
		{"a large file", querytest.Bytes, func(it *scheduler.Item) {
			if string(it.Inputs[0].Data) != large {
				querytest.End(it, api.Internal)
				return
			}
			querytest.End(it, api.OK, []byte("large"))
		}, formBody(named("input"), large), 200, `{"b64":"bGFyZ2U="}`},
		{"several inputs", two, both, formBody(named("size"), "[1, 2]", named("picture", png), "p"), 200, `{"b64":"cAEAAAACAAAA"}`},
		{"numbers as bytes", two, both, formBody(named("size", "\r\nContent-Type: application/octet-stream"), "\x01\x00\x00\x00\x02\x00\x00\x00", named("picture"), "p"), 200, `{"b64":"cAEAAAACAAAA"}`},
		{"text", text, echo, formBody(named("words"), "héé", named("context"), "null", named("ttl_ms"), "5", named("models"), `["m"]`, named("parameters"), `{"k":1}`), 200, `{"b64":"aMOpw6k="}`},
		{"JSON text", text, echo, formBody(named("words", "\r\ncontent-type: application/json; charset=utf-8"), `"a\n"`), 200, `{"b64":"YQo="}`},
		{"a batch of files", image, echo, formBody(named("input_batch", png), "a", named("input_batch", png), "b"), 200, `{"batch_predictions":[{"query_id":`},
		{"an empty text without its line", text, echo, "--B\r\n" + named("words") + "\r\n\r\n--B--", 200, `{"b64":""}`},
		{"a quoted name", api.Signature{Inputs: []api.TensorSpec{{Name: `a"b\c`, DType: api.Bytes}}, Outputs: querytest.Bytes.Outputs}, echo, formBody(named(`a\"b\\c`, `; filename="C:\x;y.png";`), "x"), 200, `{"b64":"eA=="}`},

		{"another type", image, nil, formBody(named("input", "\r\nContent-Type: audio/wav"), "x"), 415, `the part \"input\" of type audio/wav: the model takes image/*`},
		{"another type of numbers", two, nil, formBody(named("size", "\r\nContent-Type: application/pdf"), "x"), 415, `the part \"size\" of type application/pdf: the model takes application/json`},
		{"bytes of a wrong length", two, nil, formBody(named("size", "\r\nContent-Type: image/png"), "x"), 400, `the part \"size\" has 1 bytes: expected 8`},
		{"JSON of a wrong form", two, nil, formBody(named("size"), "[1, 2, 3]"), 400, `size`},
		{"more than JSON", two, nil, formBody(named("size"), "[1, 2] 3"), 400, `size: expected the end of the body`},
		{"not UTF-8", text, nil, formBody(named("words"), "\xff"), 400, `the part \"words\" is not valid UTF-8`},
		{"an input is missing", two, nil, formBody(named("size"), "[1,2]"), 400, `the input \"picture\" (bytes[]) is missing`},
		{"no input", image, nil, formBody(named("context"), "x"), 400, `the body has no input: expected \"input\", \"picture\" or \"input_batch\"`},
		{"no parts", image, nil, "--B--", 400, "the body has no input"},
		{"an unknown name", two, nil, formBody(named("input"), "x"), 400, `there is no input \"input\": expected a part for each of \"picture\", \"size\"`},
		{"twice", image, nil, formBody(named("input"), "x", named("picture"), "x"), 400, `two parts for the input \"picture\"`},
		{"an input, then a batch", image, nil, formBody(named("input"), "x", named("input_batch"), "x"), 400, "found both"},
		{"a batch, then an input", image, nil, formBody(named("input_batch"), "x", named("input"), "x"), 400, "found both"},
		{"an option twice", text, nil, formBody(named("words"), "x", named("context"), "x", named("context"), "y"), 400, "context: duplicate member"},
		{"an option that is no JSON", text, nil, formBody(named("words"), "x", named("min_confidence"), "high"), 400, "min_confidence: expected a number"},
		{"more than an option", text, nil, formBody(named("words"), "x", named("ttl_ms"), "1 2"), 400, "expected the end of the body"},
		{"a preamble", image, nil, "hello\r\n" + formBody(named("input"), "x"), 400, `the body does not begin with \"--B\"`},
		{"cut off", image, nil, "--B\r\n" + named("input") + "\r\n\r\nx", 400, `part 1, \"input\", has no end`},
		{"cut off between parts", image, nil, "--B\r\n" + named("input") + "\r\n\r\nx\r\n--B\r\n", 400, "the header fields of part 2 have no end"},
		{"an epilogue", image, nil, formBody(named("input"), "x") + "more", 400, "the body goes on behind its end"},
		{"a boundary's line", image, nil, "--B x\r\n", 400, "the line of a boundary does not end"},
		{"no disposition", image, nil, formBody("X: y", "x"), 400, "part 1 has no Content-Disposition"},
		{"another disposition", image, nil, formBody("Content-Disposition: attachment; name=input", "x"), 400, `expected form-data`},
		{"two dispositions", image, nil, formBody(named("input", "\r\n"+named("input")), "x"), 400, "two fields Content-Disposition"},
		{"two types", image, nil, formBody(named("input", png+png), "x"), 400, "two fields Content-Type"},
		{"two names", image, nil, formBody(named("input", "; name=x"), "x"), 400, "two names"},
		{"no name", image, nil, formBody("Content-Disposition: form-data; filename=x", "x"), 400, "part 1 has no name"},
		{"an open quote", image, nil, formBody(`Content-Disposition: form-data; name="x`, "x"), 400, "malformed Content-Disposition"},
		{"text behind a quote", image, nil, formBody(`Content-Disposition: form-data; name="x"y`, "x"), 400, "malformed Content-Disposition"},
		{"a field without a colon", image, nil, formBody(named("input", "\r\nX"), "x"), 400, "part 1 has a malformed header field"},
		{"a folded field", image, nil, formBody(named("input", "\r\n folded: x"), "x"), 400, "part 1 has a malformed header field"},
		{"a transfer encoding", image, nil, formBody(named("input", "\r\nContent-Transfer-Encoding: base64"), "x"), 400, `the Content-Transfer-Encoding \"base64\"`},
		{"a long head", image, nil, formBody(named("input", "\r\nX: "+strings.Repeat("x", maxPartHeadBytes)), "x"), 400, "no end within 4096 bytes"},
		{"too many parts", image, nil, formBody(strings.Split(strings.Repeat(named("salt")+"|x|", maxFormParts+1), "|")...), 400, "salt: duplicate member"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if a, body := serve(t, c.sig, c.submit).post(predict, c.body, "Content-Type", ofB); a.Status != c.status || !strings.Contains(body, c.want) {
				t.Errorf("%d %s, want %d %s", a.Status, body, c.status, c.want)
			}
		})
	}
}

func TestFormBoundaries(t *testing.T) {
	for kind, want := range map[string]string{
		"multipart/form-data; boundary=B":                                 "B",
		`Multipart/Form-Data; charset=utf-8;; Boundary="a b'()+_,-./:=?"`: "a b'()+_,-./:=?",
		"multipart/form-data":                                             "", "multipart/form-data; boundary=": "", `multipart/form-data; boundary=""`: "", "multipart/form-data; boundary": "",
		`multipart/form-data; boundary="a "`: "", "multipart/form-data; boundary=a;boundary=b": "", "multipart/form-data; boundary=a@b": "",
		"multipart/form-data; boundary=" + strings.Repeat("x", 71): "", `multipart/form-data; boundary="a`: "",
	} {
		got, err := boundaryOf([]byte(kind))
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", kind, got, err, want)
		}
	}
}

// TestFormsAreBounded: the parts, and the queries of a batch.
func TestFormsAreBounded(t *testing.T) {
	var f formReader
	if err := f.open([]byte(ofB), []byte(strings.Repeat("--B\r\n"+named("x")+"\r\n\r\nx\r\n", maxFormParts+1)+"--B--")); err != nil {
		t.Fatal(err)
	}
	var p part
	n := 0
	more, err := f.next(&p)
	for ; more; more, err = f.next(&p) {
		n++
	}
	if n != maxFormParts || err == nil || !strings.Contains(err.Error(), "more than 1024 parts") {
		t.Errorf("%d parts, then %v", n, err)
	}
	var batch []string
	for range 9 { // serve takes 8
		batch = append(batch, named("input_batch"), "x")
	}
	if a, body := serve(t, image, nil).post(predict, formBody(batch...), "Content-Type", ofB); a.Status < 400 {
		t.Errorf("a batch of 9 is answered %d %s", a.Status, body)
	}
}

// FuzzForm: what is accepted has the same parts for Go's parser, which is laxer.
func FuzzForm(f *testing.F) {
	f.Add(ofB, formBody(named("input", `; filename="x.png"`, "\r\nContent-Type: image/png"), "\x00\xff", named("context"), "u"))
	f.Add(`multipart/form-data; boundary="a b"`, "--a b\r\n"+named(`a\"b`)+"\r\n\r\n\r\n--a bc\r\n--a b--")
	f.Add(ofB, "--B--")
	f.Fuzz(func(t *testing.T, kind, body string) {
		var ours formReader
		if len(body) > 1<<16 || ours.open([]byte(kind), []byte(body)) != nil {
			return
		}
		type one struct{ name, data string }
		var parts []one
		for {
			var p part
			more, err := ours.next(&p)
			if err != nil {
				return
			}
			if !more {
				break
			}
			parts = append(parts, one{string(p.name), string(p.data)})
		}
		boundary, _ := boundaryOf([]byte(kind))
		theirs := multipart.NewReader(strings.NewReader(body), string(boundary))
		for i := 0; ; i++ {
			p, err := theirs.NextRawPart()
			if errors.Is(err, io.EOF) {
				if i != len(parts) {
					t.Fatalf("%q has %d parts, found %d", body, i, len(parts))
				}
				return
			}
			if err != nil {
				return // a form that Go refuses: it knows fewer characters in names of fields
			}
			data, err := io.ReadAll(p)
			if err != nil {
				return
			}
			if i >= len(parts) || !bytes.Equal(data, []byte(parts[i].data)) {
				t.Fatalf("part %d of %q is %q", i, body, data)
			}
			if _, params, err := mime.ParseMediaType(p.Header.Get("Content-Disposition")); err == nil && params["name"] != parts[i].name {
				t.Fatalf("part %d of %q has the name %q, found %q", i, body, params["name"], parts[i].name)
			}
		}
	})
}
