package query

import (
	"fmt"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
)

// Unlinked is a function without models. It has no signature, so its requests cannot be parsed, and no query of it enters the path:
// a dialect that can tell how many queries a request has answers each with the default.
type Unlinked struct {
	Name    string
	Default []byte
	Stats   *obs.Endpoint
}

// UnlinkedError is the error of a request for an unlinked function.
type UnlinkedError struct{ Function *Unlinked }

func (e *UnlinkedError) Error() string {
	return fmt.Sprintf("function %q has no models yet: add some to its declaration, or link one", e.Function.Name)
}

// AnswerUnlinked counts n queries of a function without models, and calls yield with the id of each. More queries than a request may
// have are an error.
func (p *Path) AnswerUnlinked(u *Unlinked, n int, yield func(id uint64)) error {
	if n > p.cfg.MaxBatch {
		return api.Errorf(api.InvalidArgument, "more than %d inputs in one request: split it", p.cfg.MaxBatch)
	}
	u.Stats.Observe(api.NoReplica, n, 0)
	first := p.ids.take(n)
	for i := range n {
		yield(p.ids.id(first + uint64(i)))
	}
	return nil
}
