package apptest

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api/client"
)

// serveClients starts a gateway with the functions that the tests of all client libraries call.
func serveClients(t *testing.T) *gateway {
	t.Helper()
	g := launchWith(t, newDir(t), []string{"PATH=" + filepath.Dir(programs.worker) + ":" + os.Getenv("PATH")},
		"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config", filepath.Join(programs.repo, "api/clients/testdata"))
	g.ready()
	return g
}

func TestGoClient(t *testing.T) {
	t.Parallel()
	g := serveClients(t)
	c, err := client.New(client.Config{Address: g.functions})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx := bounded(t)

	d, err := c.Describe(ctx, "square")
	if err != nil || !d.Raw.Input || !d.Raw.Output || d.Inputs[0].DType != "float32" || !slices.Equal(d.Inputs[0].Shape, []int64{64, 64}) || d.Example != nil {
		t.Errorf("%+v, %v", d, err)
	}
	if names, err := c.Functions(ctx); err != nil || !slices.Contains(names, "words") {
		t.Errorf("%v, %v", names, err)
	}

	floats := make([]float32, 64*64)
	for i := range floats {
		floats[i] = float32(i) / 3
	}
	raw, err := binary.Append(nil, binary.LittleEndian, floats)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := c.PredictRaw(ctx, "square", raw, nil); err != nil || !slices.Equal(p.Raw, raw) || p.QueryID == 0 || p.Confidence != 1 || !slices.Equal(p.Models, []string{"square@1"}) {
		t.Errorf("raw: %v", err)
	}
	p, err := c.Predict(ctx, "markers", client.Bytes("context"), &client.Call{Context: "user-17"})
	var text client.Bytes
	if err != nil || p.Decode(&text) != nil || string(text) != "user-17" {
		t.Errorf("%q, %v", text, err)
	}
	p, err = c.Predict(ctx, "markers", "parameters", &client.Call{Parameters: map[string]int{"top_k": 3}})
	if err != nil || p.Decode(&text) != nil || string(text) != `{"top_k":3}` {
		t.Errorf("%q, %v", text, err)
	}
	if p, err = c.Predict(ctx, "guarded", "error", nil); err != nil || !p.Default || p.DefaultExplanation == "" || p.Decode(&text) != nil || string(text) != "default" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err = c.Predict(ctx, "markers", "error", nil); client.CodeOf(err) != "model_error" {
		t.Error(err)
	}

	// A stream that is left ends; one whose context ends says so.
	streaming, cancel := context.WithCancel(ctx)
	s, err := c.Stream(streaming, "words", "forever:1000", nil)
	if err != nil || !s.Next() || s.QueryID == 0 {
		t.Fatal(err)
	}
	cancel()
	for s.Next() {
	}
	if !errors.Is(s.Err(), context.Canceled) {
		t.Errorf("a stream whose context has ended: %v", s.Err())
	}
	if s, err = c.Stream(ctx, "echo", []float32{1}, nil); err != nil || !s.Next() || string(s.Output()) != "[1]" || s.Next() || s.Err() != nil {
		t.Errorf("a stream of a model that answers at once: %v", err)
	}

	results, err := c.PredictBatch(ctx, "learning", [][]float32{{1}, {2}}, nil)
	if err != nil || len(results) != 2 {
		t.Fatal(results, err)
	}
	loss := 0.25
	all := []client.Feedback{{QueryID: results[0].QueryID, Loss: &loss}, {QueryID: results[1].QueryID, Label: []float32{2}}}
	if counted, err := c.FeedbackBatch(ctx, "learning", all); err != nil || counted[0].Status != "counted" || counted[1].Status != "counted" {
		t.Errorf("%+v, %v", counted, err)
	}
}

// The program of the guide's page prints what the page says.
func TestGoClientPage(t *testing.T) {
	t.Parallel()
	g := serveClients(t)
	page, err := os.ReadFile(filepath.Join(programs.repo, "deploy/guide/go-client.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(page), "```go\n")
	program, rest, _ := strings.Cut(program, "```\n")
	_, want, _ := strings.Cut(rest, "```text\n")
	want, _, _ = strings.Cut(want, "```\n")
	dir := newDir(t)
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "page")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := compile(binary, source, nil); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(bounded(t), binary)
	cmd.Env = append(os.Environ(), "XEBEC_SERVER="+g.functions)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("the program prints\n%s\nwant\n%s\n%v", out, want, err)
	}
}
