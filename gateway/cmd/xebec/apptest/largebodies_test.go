package apptest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Large raw bodies of many clients at a time, of all sizes, one of which never comes as a whole, reach the replicas unchanged,
// also while replicas die. Most of them are read by the workers where they were received.
func TestLargeBodiesArriveUnchanged(t *testing.T) {
	t.Parallel()
	const clients, each = 12, 12
	g := serve(t, "--config", manifest(t, testModel("m", nil, "replicas: {min: 2}", uncached), function("f", "m", "slo: 60s")))
	m := g.awaitReplicas("m", 2)

	leaving, err := net.Dial("tcp", g.functions)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(leaving, "POST /f/predict HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", 1<<20, make([]byte, 100<<10))

	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(client), 14))
			for k := range each {
				body := make([]byte, 64<<10+random.IntN(1<<20))
				for i := range body {
					body[i] = byte(random.Uint32())
				}
				copy(body, fmt.Sprintf("%d/%d ", client, k)) // no marker of the model
				a, err := g.post(bounded(t), "/f/predict", "application/octet-stream", body)
				if err != nil || a.Status != 200 || a.text() != string(body) {
					t.Errorf("client %d, body %d of %d bytes: %v, status %d, %d bytes came back", client, k, len(body), err, a.Status, len(a.text()))
				}
				if client == 1 && k == each/2 {
					kill(t, m.Replicas[0].PID)
				}
			}
		})
	}
	all.Wait()
	leaving.Close()
	m = g.awaitReplicas("m", 2)
	inPlace, queries := uint64(0), uint64(0)
	for _, r := range m.Replicas {
		inPlace, queries = inPlace+r.InPlace, queries+r.Queries
	}
	if inPlace == 0 || inPlace > queries {
		t.Errorf("%d of %d inputs were read in place", inPlace, queries)
	}
}
