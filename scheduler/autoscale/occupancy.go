package autoscale

// occupancy returns the need of a model whose queries hold a place of a replica until they end: streams. How long one lasts
// is not known before it ends, and a profile of first outputs says nothing about it. So the scaler counts the places: by
// Little's law (A Proof for the Queuing Formula L = λW, Operations Research 9(3), 1961) the streams that are open or wait,
// on average, are the rate of their arrivals times how long one holds its place.
//
// Six streams on replicas of two places each fill three replicas. With a utilization of 0.7, 4.24 are planned, so five: the
// next streams find a place at once.
//
// The count of this moment asks for replicas at once, because streams that wait are worked off by no batch. The mean of
// about a stable window, and a hint with the time that the mean suggests, do so too; the most of the delay keeps them.
// A replica is removed only after its streams have ended, which is not the scaler's business.
func (s *Scaler) occupancy(in *Sample, cfg *Config) (urgent, all need) {
	mean, rush, _ := s.rates(in)
	if in.Ready > 0 {
		s.places = float64(max(in.Concurrency, 1))
	}
	if s.places == 0 { // no replica has ever said how many places it has: one replica finds out
		if in.Queued+in.InFlight > 0 || expected(in) > 0 {
			urgent = need{1, max(rush, expected(in)), Occupied}
		}
		return urgent, urgent
	}
	planned := func(streams float64) float64 { return cfg.planned(streams / s.places) }
	urgent.raise(planned(float64(in.Queued+in.InFlight)), max(mean, rush), Occupied)
	if mean > 0 {
		all.raise(planned(expected(in)*s.held/mean), expected(in), Expected)
	}
	s.delayed.put(max(urgent.replicas, all.replicas))
	all.raise(min(planned(s.held), s.delayed.value()), mean, Occupied)
	if urgent.replicas > all.replicas {
		all = urgent
	}
	if expected(in) > 0 {
		all.raise(1, expected(in), Expected)
	}
	return urgent, all
}
