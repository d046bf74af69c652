package apptest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// placesOfGo is how many streams a worker in Go evaluates at once at most.
const placesOfGo = 62

// serveStreamReplicas starts model flow of goStreaming with so many replicas, each with placesOfGo places.
func serveStreamReplicas(t *testing.T, replicas int, more string, args ...string) *gateway {
	t.Helper()
	text := strings.NewReplacer(`"8"`, fmt.Sprintf("%q", fmt.Sprint(placesOfGo)), "stream_idle: 2s", fmt.Sprintf("stream_idle: 10m\nreplicas: {min: %d, max: %d}", replicas, replicas)).
		Replace(fmt.Sprintf(goStreaming, programs.worker))
	g := serve(t, append([]string{"--config", manifest(t, text, more)}, args...)...)
	g.awaitReplicas("flow", replicas)
	return g
}

// openStream opens a stream on a connection of its own, and returns a reader of the answer.
func (g *gateway) openStream(input string) (net.Conn, *bufio.Reader) {
	g.t.Helper()
	c := g.dial()
	body := fmt.Sprintf(`{"input":%q}`, input)
	fmt.Fprintf(c, "POST /flow/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: application/jsonl\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	return c, bufio.NewReader(c)
}

// readFirst reads the head of an answer and the first output, of n bytes.
func readFirst(t *testing.T, r *bufio.Reader, n int) {
	t.Helper()
	answer, err := http.ReadResponse(r, nil)
	if err != nil || answer.StatusCode != 200 {
		t.Fatalf("a stream is answered by %v, %v", answer, err)
	}
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	if want := len(`{"output":""}`) + 1 + n; err != nil || len(line) != want {
		t.Fatalf("the first output is a line of %d bytes: %.40q, %v; expected %d", len(line), line, err, want)
	}
}

func (g *gateway) descriptors() int {
	open, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", g.cmd.Process.Pid))
	return len(open)
}

// A thousand clients each open a stream without end, read the first output, and then nothing. The gateway's memory stays within its limits, other
// clients of the model and of its neighbour are answered, and the thousand are cut as unread answers are.
func TestAThousandSlowReaders(t *testing.T) {
	t.Parallel()
	const readers, outputBytes = 1000, 64 << 10
	const replicas = readers/placesOfGo + 1
	g := serveStreamReplicas(t, replicas, numbers("m"), "--min-rate", "1MiB")
	before := g.descriptors()
	var all []net.Conn
	for range readers {
		c, r := g.openStream(fmt.Sprint("forever:", outputBytes))
		readFirst(t, r, outputBytes)
		all = append(all, c)
	}
	if a := g.json("/flow/predict", `{"input":"count:3"}`); string(a.Output) != `["0","1","2"]` {
		t.Errorf("beside %d streams that are not read another one is answered by %v", readers, a)
	}
	if a := g.json("/m/predict", `{"input":[1,2,3,4]}`); !a.predicted() {
		t.Errorf("beside %d streams that are not read the neighbour is answered by %v", readers, a)
	}
	g.awaitMetric(0, "streams_open", "flow")
	if st := g.model("flow").Streams; st == nil || st.Ended != (api.StreamEnds{Finished: 1, Left: readers}) {
		t.Errorf("the streams have ended as %+v: expected %d that were left", st, readers)
	}
	if n := g.metrics().samples[`xebec_edge_refused_total{port="functions",reason="unread_answer"}`]; n != readers {
		t.Errorf("%v unread answers were cut: expected %d", n, readers)
	}
	// Two segments for each replica, an output for each stream that is being written and a part of it on its way to the socket, and as much as
	// that for the garbage collector. The race detector shadows every word.
	limitMiB := replicas*2*8 + readers*5*outputBytes>>20 + 64
	if raceDetector {
		limitMiB *= 4
	}
	peak := peakMiB(t, g.cmd.Process.Pid)
	if peak > limitMiB {
		t.Errorf("the gateway had %d MiB resident: expected at most %d", peak, limitMiB)
	}
	t.Logf("at most %d MiB resident, of %d", peak, limitMiB)
	for _, c := range all {
		c.Close()
	}
	g.client.CloseIdleConnections()
	g.await("the descriptors to be back", func(context.Context) (bool, string) {
		n := g.descriptors()
		return n <= before, fmt.Sprintf("%d, %d before the streams", n, before)
	})
}

// A thousand streams that are silent after a large output leave room for those of others.
func TestAThousandSilentStreams(t *testing.T) {
	t.Parallel()
	const streams, outputBytes = 1000, 64 << 10
	g := serveStreamReplicas(t, streams/placesOfGo+1, "")
	for range streams {
		_, r := g.openStream(fmt.Sprintf("big:%d hang", outputBytes))
		readFirst(t, r, outputBytes)
	}
	g.awaitMetric(streams, "streams_open", "flow")
	if a := g.json("/flow/predict", `{"input":"count:3"}`); string(a.Output) != `["0","1","2"]` {
		t.Errorf("beside %d silent streams another one is answered by %v", streams, a)
	}
}
