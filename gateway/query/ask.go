package query

import (
	"context"
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
)

// askedAtOnce is how many queries of Ask are in a model's queue at a time: enough for its batches, few enough that others do not wait
// behind them.
const askedAtOnce = 64

// Answer is what a model version made of one query. Outputs are in memory of their own.
type Answer struct {
	Code    api.Code
	Outputs []api.Value
}

// Ask has one model version evaluate queries, for the gateway's own sake: neither the cache nor traffic rules see them, and the
// model's statistics of requests do not count them. inputs has the tensors of each query, as the signature wants them, and stays the
// caller's. Each may take as long as within. It returns early, with fewer answers and the reason, when ctx ends.
func (g *Path) Ask(ctx context.Context, m *Model, inputs [][]api.Value, within time.Duration) ([]Answer, error) {
	answers := make([]Answer, 0, len(inputs))
	var unseen obs.Endpoint
	for len(inputs) > 0 {
		if err := ctx.Err(); err != nil {
			return answers, err
		}
		n := min(len(inputs), askedAtOnce, g.cfg.MaxBatch)
		c := g.newCall()
		c.leave() // whoever drains need not wait for it
		c.model, c.queue, c.stats, c.unlisted = m, m.Direct, &unseen, true
		c.render = func(*call) {}
		c.arrived, c.slo = g.cfg.Now(), api.Nanos(min(within*time.Duration(n), maxSLO))
		for _, query := range inputs[:n] {
			vals, err := c.Next()
			if err != nil {
				c.drop()
				return answers, err
			}
			for i := range vals {
				vals[i].Data = append(vals[i].Data[:0], query[i].Data...)
				vals[i].Dims = append(vals[i].Dims[:0], query[i].Dims...)
			}
		}
		c.submit(handlerRef)
		select {
		case <-c.done:
		case <-ctx.Done():
			c.cancel()
			<-c.done
		}
		for _, it := range c.items {
			a := Answer{Code: it.code}
			if it.code == api.OK {
				a.Outputs = make([]api.Value, len(it.outputs))
				for i, v := range it.outputs {
					a.Outputs[i] = api.Value{Data: append([]byte(nil), v.Data...), Dims: append([]int64(nil), v.Dims...)}
				}
			}
			answers = append(answers, a)
		}
		c.unrefHandler()
		if inputs = inputs[n:]; m.Ready.Load() == 0 && answers[len(answers)-1].Code != api.OK {
			return answers, fmt.Errorf("%s has lost its replicas after %d of its queries", m.ID, len(answers))
		}
	}
	return answers, nil
}
