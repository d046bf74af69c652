package query

import "github.com/xebec-serving/xebec/scheduler/driver"

// Cork gathers queries of several requests that one goroutine submits. See [driver.Cork].
type Cork = driver.Cork

// dispatch hands the members that must be evaluated to their lanes. Members of one lane go together, so that they can
// share a batch.
func (r *Request) dispatch(cork *Cork) {
	width := 1 + len(r.direct)
	if fn := r.fn; fn != nil {
		width = len(fn.Candidates) + len(fn.Shadows) + len(fn.Tees)
	}
	for candidate := range width {
		batch, refs := r.batch[:0], int32(0)
		var model *Model
		for _, q := range r.queries {
			if q.todo == len(q.members) || q.members[q.todo].candidate != candidate {
				continue
			}
			if m := q.members[q.todo]; m.evaluated {
				batch, model = append(batch, &m.Item), m.model
				if !m.holds {
					refs++
				}
			}
			q.todo++
		}
		r.batch = batch
		if len(batch) > 0 {
			if refs > 0 {
				r.refs.Add(refs)
			}
			model.Lane.SubmitAll(batch, cork)
			model.wakeIfEmpty()
		}
	}
}

// submit hands a single member to its lane, with a reference to the request that the caller has taken.
func (m *member) submit() {
	model := m.model // the member may be released at once
	m.single[0] = &m.Item
	model.Lane.SubmitAll(m.single[:], nil)
	model.wakeIfEmpty()
}
