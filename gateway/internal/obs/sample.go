package obs

import "github.com/xebec-serving/xebec/api"

// Sample is what an endpoint has answered, in a form that another process reads.
type Sample struct {
	// Answers is how many requests were answered, without those that the caller got wrong or gave up; Failed is how many of them had no
	// prediction, or a default in its place.
	Answers uint64 `json:"answers"`
	Failed  uint64 `json:"failed,omitempty"`
	// Buckets are the latencies, as in Endpoint and without the empty buckets at the end.
	Buckets []uint64 `json:"buckets,omitempty"`
}

// Sample is the part of a reading that tells whether an endpoint does well.
func (r Reading) Sample() (s Sample) {
	for c, n := range r.Codes {
		switch code := api.Code(c); {
		case isCallers(code):
		case code == api.OK:
			s.Answers += n
		default:
			s.Answers += n
			s.Failed += n
		}
	}
	last := len(r.fine)
	for last > 0 && r.fine[last-1] == 0 {
		last--
	}
	s.Buckets = r.fine[:last:last]
	return s
}

// isCallers reports whether a request ended with the code because of what its caller asked for, or did. Of the codes with a status of
// 500 or more, that is what the caller demanded beyond a prediction (LowConfidence), what does not exist (Unsupported), and a query of a
// model that is part of what it asks for (Cycle): where its own caller is answered, that answer counts.
func isCallers(code api.Code) bool {
	return code == api.LowConfidence || code == api.Unsupported || code == api.Cycle || code != api.OK && code.HTTPStatus() < 500
}

// Since is what came after an earlier sample of the same endpoint. Counts that have decreased are 0: another process wrote them.
func (s Sample) Since(earlier Sample) Sample {
	d := Sample{Answers: less(s.Answers, earlier.Answers), Failed: less(s.Failed, earlier.Failed), Buckets: make([]uint64, len(s.Buckets))}
	for i, n := range s.Buckets {
		if i < len(earlier.Buckets) {
			n = less(n, earlier.Buckets[i])
		}
		d.Buckets[i] = n
	}
	return d
}

func less(a, b uint64) uint64 { return a - min(a, b) }

// Add adds the counts of another endpoint; latencies are not added.
func (s *Sample) Add(o Sample) { s.Answers, s.Failed = s.Answers+o.Answers, s.Failed+o.Failed }

// Timed is how many latencies the sample has.
func (s Sample) Timed() (n uint64) {
	for _, b := range s.Buckets {
		n += b
	}
	return n
}

// Quantile is that of Reading, in seconds.
func (s Sample) Quantile(q float64) float64 {
	var all [endpointBuckets]uint64
	copy(all[:], s.Buckets)
	return quantile(all[:], s.Timed(), q, endpointSubBits) / 1e9
}
