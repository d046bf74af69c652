package obs

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
	"github.com/xebec-serving/xebec/api"
)

// Snapshot is everything that a scrape exports. The server fills it.
type Snapshot struct {
	Version   string
	Started   time.Time
	Functions []FunctionSample
	Models    []ModelSample
	Replicas  []ReplicaSample
	Devices   []DeviceSample
	Cache     CacheSample
	State     StateSample
	Capacity  CapacitySample
	Lifecycle LifecycleSample
	// Epochs counts the scheduler's plans. PlanTime is the time to make them, in seconds.
	Epochs   uint64
	PlanTime Histogram
	// AcceptErrors counts connections that were not accepted, by port: "functions", "admin".
	AcceptErrors map[string]uint64
	// EdgeRefused counts requests that reached no route, by port and reason.
	EdgeRefused map[string]map[string]uint64
	Loops       LoopSample
}

// LoopSample counts what moves requests between clients, the gateway and replicas on its host. No count ever falls;
// BodiesWaiting is no count.
type LoopSample struct {
	PollWaits, PollReads, PollWrites uint64
	BellsRung, BellsReceived         uint64
	ClientSpins, ReplicaSpins        Spins
	BodiesWaiting                    int // for room in the memory for bodies, now
}

// Spins counts those that found something and those that did not.
type Spins struct{ Found, Vain uint64 }

// FunctionSample describes one function.
type FunctionSample struct {
	Name, Model string
	Endpoint    Reading
	// Planned has the function's candidates. Refused is the fraction of the queries that the plan refuses.
	Planned []PlannedSample
	Refused float64
	// CostPerSecond is the planned cost of the evaluations, in the operator's unit.
	CostPerSecond float64
	Learning      *Learning
	Candidates    []CandidateSample
}

// CandidateSample is the share that a policy gives to a candidate, and the candidate's losses from feedback.
type CandidateSample struct {
	Ref     string
	Share   float64
	Losses  uint64
	LossSum float64
}

// CacheSample describes the prediction cache.
type CacheSample struct {
	Bytes, MaxBytes     int64
	Entries             int
	Evicted, Collisions uint64
}

// StateSample describes the policy states in memory and on their way to the store. Kept means that there is a store.
type StateSample struct {
	HasStore, Unavailable bool
	Contexts, Pending     int64
	Lost, Errors, Evicted uint64
	Elsewhere             uint64
}

// PlannedSample is the fraction of a function's queries, from 0 to 1, that a model version evaluates by plan.
type PlannedSample struct {
	Model, Version string
	Part           float64
}

// DeviceSample describes one shared device.
type DeviceSample struct {
	Name string
	// Busy is the planned fraction of its time.
	Busy float64
}

// ModelSample describes one model version.
type ModelSample struct {
	Name, Version string
	Ready         int
	Queued        int
	InFlight      int
	// Endpoint counts the requests that addressed the model directly.
	Endpoint Reading
	// Cache counts queries by outcome of the prediction cache.
	Cache                            map[string]uint64
	QueueTime, BatchSize, WorkerTime Histogram
	Ended                            map[string]uint64
	Batches, Retries, Isolated       uint64
	// Hedged counts queries that were sent to a second replica, HedgeWins those that the second replica answered first.
	Hedged, HedgeWins uint64
	// Streams is nil unless the model answers in streams.
	Streams *api.StreamStatus
	// CapacityPerSecond is how many queries the replicas can evaluate, 0 while unknown. PlannedPerSecond is how many
	// they are planned to evaluate.
	CapacityPerSecond, PlannedPerSecond float64
	// DeadlineLate is the delay after the deadline at which queries without a prediction were answered, in seconds.
	DeadlineLate Histogram
}

// ReplicaSample counts what happened to the replicas of one version since the gateway started. No count ever falls.
type ReplicaSample struct {
	Name, Version string
	// Gone: the version does not exist any more.
	Gone     bool
	Restarts uint64
	// Exits has every reason.
	Exits map[string]uint64
}

// Histogram has cumulative counts by upper bound.
type Histogram struct {
	Count   uint64
	Sum     float64
	Buckets map[float64]uint64
}

// Scrape renders metrics in Prometheus's text format.
type Scrape struct {
	registry *prometheus.Registry
}

// NewScrape returns a Scrape that calls read at each scrape.
func NewScrape(read func() Snapshot) *Scrape {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &collector{read: read})
	return &Scrape{registry: r}
}

// Render returns the body of a scrape and its content type.
func (s *Scrape) Render() (body []byte, contentType string, err error) {
	families, err := s.registry.Gather()
	if err != nil {
		return nil, "", fmt.Errorf("gather metrics: %w", err)
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	var b bytes.Buffer
	enc := expfmt.NewEncoder(&b, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return nil, "", fmt.Errorf("render metrics: %w", err)
		}
	}
	return b.Bytes(), string(format), nil
}

type collector struct{ read func() Snapshot }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("xebec_"+name, help, labels, nil)
}

var (
	buildInfo       = desc("build_info", "The gateway's version; always 1.", "version", "goversion")
	startTime       = desc("start_time_seconds", "When the gateway started, in unix time.")
	acceptErrors    = desc("accept_errors_total", "Connections that a port (functions, admin) did not accept or closed at once: no descriptors, or on the admin port too many connections.", "port")
	edgeRefused     = desc("edge_refused_total", "Requests and connections that a port (functions, admin) refused before they reached a route. Reasons: framing (malformed or not supported), too_large, first_byte_timeout, header_timeout, rate (the body came too slowly), body_memory (--body-memory is used up, or as much by answers that are not read), unread_answer (the client did not take its answer).", "port", "reason")
	pollWaits       = desc("http_poll_waits_total", "Looks of the function port's pollers (clear text) for connections that are ready. Far more than requests: wake-ups for little.")
	pollReads       = desc("http_poll_reads_total", "Reads from the function port's connections in clear text.")
	pollWrites      = desc("http_poll_writes_total", "Writes to the function port's connections in clear text.")
	bodiesWaiting   = desc("http_bodies_waiting", "Bodies of requests to the function port (clear text) that wait up to a second for room in --body-memory.")
	bellsRung       = desc("replica_bells_rung_total", "Wake-ups of sleeping replicas on the gateway's host. One wake-up may be for several batches.")
	bellsReceived   = desc("replica_bells_received_total", "Wake-ups of the gateway by replicas on its host.")
	spins           = desc("spins_total", "Spins before sleeping (busy polling), by what was waited for, clients or replicas, and result: found, or vain, after which the gateway slept.", "for", "result")
	fnRequests      = desc("function_requests_total", "Requests to functions, by the code of their first query that did not end in ok, also where the caller got a default.", "function", "code")
	fnQueries       = desc("function_queries_total", "Queries in requests to functions.", "function")
	fnLatency       = desc("function_latency_seconds", "From the request's acceptance to its answer, or to the first output of a stream.", "function")
	fnSLO           = desc("function_slo_total", "Requests to functions by outcome: hit (predictions for all of its queries within the latency objective: the function's slo, or the request's own), miss (a default, an error, or later). Requests that are malformed or that the caller gave up are neither.", "function", "outcome")
	modelRequests   = desc("model_requests_total", "Requests that addressed the model itself (Open Inference Protocol), by how they ended.", "model", "version", "code")
	modelLatency    = desc("model_latency_seconds", "From acceptance to answer, or to the first output of a stream, of requests that addressed the model itself.", "model", "version")
	modelQueries    = desc("model_queries_total", "Queries that the model's queue took, by how they ended. Queries that the cache answers or the plan refuses are not included.", "model", "version", "code")
	modelQueue      = desc("queue_seconds", "From a query's acceptance to the sending of its batch.", "model", "version")
	modelBatch      = desc("batch_size", "Queries in a batch.", "model", "version")
	modelWorker     = desc("worker_seconds", "Evaluation time of a batch, as the gateway sees it; of a stream, that of its first output.", "model", "version")
	modelBatches    = desc("batches_total", "Batches that came back.", "model", "version")
	modelRetries    = desc("retries_total", "Queries tried again after their replica died.", "model", "version")
	modelIsolated   = desc("isolated_total", "Queries evaluated again, each alone, after their batch failed.", "model", "version")
	modelStreams    = desc("streams_open", "Streams that have had an output and not ended, of models that answer in streams.", "model", "version")
	modelOutputs    = desc("stream_outputs_total", "Outputs of streams, first ones included.", "model", "version")
	modelStreamEnds = desc("streams_ended_total", "Streams by how they ended: finished, left (the caller), failed (the model), lost (the replica ended, or was silent for longer than stream_idle).", "model", "version", "reason")
	modelHedged     = desc("hedged_queries_total", "Queries sent to a second replica because the first one was late beyond its own profile.", "model", "version")
	modelHedgeWins  = desc("hedge_wins_total", "Hedged queries that the second replica answered first.", "model", "version")
	replicaStarts   = desc("replica_restarts_total", "Launches of replicas that followed one that had ended by itself or was killed. Versions that are gone keep it.", "model", "version")
	replicaExits    = desc("replica_exits_total", "Replicas that ended, by reason: exited (by itself, whatever its exit code), killed (by a signal that the gateway did not send), oom (the kernel killed it or one of its processes for want of memory), unready (not ready in time), hung (it did not take or answer a batch in time), violation (it broke the worker protocol), stayed (it had disconnected and went on), lost (its reaper or its container engine went away), not_started, stopped (it was not wanted any more). Versions that are gone keep it.", "model", "version", "reason")
	modelReplicas   = desc("replicas_ready", "Connected replicas that take batches. A version that never had a replica and was never asked has only this series.", "model", "version")
	modelQueued     = desc("queue_length", "Queries that wait.", "model", "version")
	modelInFlight   = desc("in_flight", "Queries in batches that are with a replica.", "model", "version")
	fnPlanned       = desc("function_planned_share", "The part of a function's queries that a model version evaluates by the plan in force.", "function", "model", "version")
	fnRefused       = desc("function_refused_share", "The part of a function's queries that the plan in force refuses.", "function")
	fnCost          = desc("function_cost_per_second", "What a function's evaluations cost by the plan in force, in the unit of the models' cost.", "function")
	modelCapacity   = desc("model_capacity_queries_per_second", "Queries that the replicas can evaluate; 0 while that is not known.", "model", "version")
	modelPlanned    = desc("model_planned_queries_per_second", "Queries that the replicas evaluate by the plan in force.", "model", "version")
	modelLate       = desc("deadline_late_seconds", "How long after its deadline a query without a prediction was answered.", "model", "version")
	deviceBusy      = desc("device_busy_ratio", "The part of a shared device's time that the plan in force uses.", "device")
	schedEpochs     = desc("scheduler_epochs_total", "Plans that were made.")
	schedPlan       = desc("scheduler_plan_seconds", "How long a plan took to make.")
	fnFeedback      = desc("feedback_total", "Feedback by outcome: counted, counted_in_part (the policy no longer had the input or the predictions), duplicate, late, unknown, refused (malformed, or too much is waiting), nothing_to_learn. models_asked counts models asked because of feedback, models_taught labels handed to models.", "function", "outcome")
	fnShare         = desc("policy_share", "The part of a function's queries that its policy asks a candidate for, over all contexts.", "function", "candidate")
	fnLoss          = desc("feedback_loss", "Losses that feedback reported for a candidate's predictions, each from 0 to 1. The rate of _sum divided by the rate of _count is the candidate's error rate.", "function", "candidate")
	fnLate          = desc("ensemble_late_total", "Ensemble members without a prediction when the answer was due. If xebec_queue_seconds rises too, there are too few replicas; if not, a model straggles.", "function")
	fnDropped       = desc("ensemble_dropped_total", "Ensemble members that were not asked because the plan had no room.", "function")
	fnShadow        = desc("shadow_predictions_total", "Predictions of shadow models, compared with the answer: same, different, failed, dropped.", "function", "outcome")
	modelCache      = desc("cache_requests_total", "Queries by cache outcome: hit, miss, coalesced (waited for an identical query), bypass (too large, too many evaluations in flight, or more urgent than the running evaluation).", "model", "version", "outcome")
	cacheBytes      = desc("cache_bytes", "Memory of the prediction cache in use.")
	cacheMaxBytes   = desc("cache_max_bytes", "Bound of the prediction cache's memory.")
	cacheEntries    = desc("cache_entries", "Predictions in the cache.")
	cacheEvicted    = desc("cache_evicted_total", "Predictions evicted from the cache.")
	cacheCollided   = desc("cache_collisions_total", "Look-ups that found a different input under the same key; they count as misses. Report a value above 0.")
	stateContexts   = desc("policy_contexts", "Contexts whose policy state is in memory.")
	stateEvicted    = desc("policy_contexts_evicted_total", "Contexts evicted from memory. A fast rise means more active contexts than --contexts.")
	statePending    = desc("policy_pending_states", "Policy states with changes that the store has not confirmed.")
	stateLost       = desc("policy_lost_updates_total", "Changes that will never be written because too many were waiting, because the store refused them, or because another gateway had taken the lease on a policy's value.")
	stateElsewhere  = desc("policy_learned_elsewhere_total", "Feedback of which only the losses were learned here, because another gateway has the lease on the policy's value.")
	stateErrors     = desc("policy_store_errors_total", "Calls of the store that failed.")
	stateAway       = desc("policy_store_away", "1 while the store does not answer.")
	allDescriptors  = []*prometheus.Desc{buildInfo, startTime, acceptErrors, edgeRefused, pollWaits, pollReads, pollWrites, bodiesWaiting, bellsRung, bellsReceived, spins, fnRequests, fnQueries, fnLatency, fnSLO, modelRequests, modelLatency, modelQueries, modelQueue,
		modelBatch, modelWorker, modelBatches, modelRetries, modelIsolated, replicaStarts, replicaExits, modelReplicas, modelQueued, modelInFlight,
		modelStreams, modelOutputs, modelStreamEnds, modelHedged, modelHedgeWins, fnPlanned, fnRefused, fnCost, modelCapacity, modelPlanned, modelLate, deviceBusy, schedEpochs, schedPlan,
		fnFeedback, fnShare, fnLoss, fnLate, fnDropped, fnShadow, modelCache, cacheBytes, cacheMaxBytes, cacheEntries, cacheEvicted, cacheCollided,
		stateContexts, stateEvicted, statePending, stateLost, stateElsewhere, stateErrors, stateAway}
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, list := range [][]*prometheus.Desc{allDescriptors, lifecycleDescriptors, capacityDescriptors} {
		for _, d := range list {
			ch <- d
		}
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.read()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	// A histogram is exported when it has its first value: most of ten thousand models never get a query, and a scrape
	// should stay small.
	hist := func(d *prometheus.Desc, h Histogram, labels ...string) {
		if h.Count == 0 {
			return
		}
		ch <- prometheus.MustNewConstHistogram(d, h.Count, h.Sum, h.Buckets, labels...)
	}
	requests := func(d *prometheus.Desc, r Reading, labels ...string) {
		for code := range api.Codes {
			if n := r.Codes[code]; n > 0 || code == api.OK {
				count(d, n, append(labels[:len(labels):len(labels)], code.String())...)
			}
		}
	}
	gauge(buildInfo, 1, s.Version, runtime.Version())
	gauge(startTime, float64(s.Started.UnixMilli())/1000)
	for port, n := range s.AcceptErrors {
		count(acceptErrors, n, port)
	}
	for port, reasons := range s.EdgeRefused {
		for reason, n := range reasons {
			count(edgeRefused, n, port, reason)
		}
	}
	count(pollWaits, s.Loops.PollWaits)
	count(pollReads, s.Loops.PollReads)
	count(pollWrites, s.Loops.PollWrites)
	gauge(bodiesWaiting, float64(s.Loops.BodiesWaiting))
	count(bellsRung, s.Loops.BellsRung)
	count(bellsReceived, s.Loops.BellsReceived)
	for waitsFor, n := range map[string]Spins{"clients": s.Loops.ClientSpins, "replicas": s.Loops.ReplicaSpins} {
		count(spins, n.Found, waitsFor, "found")
		count(spins, n.Vain, waitsFor, "vain")
	}
	count(schedEpochs, s.Epochs)
	hist(schedPlan, s.PlanTime)
	for _, d := range s.Devices {
		gauge(deviceBusy, d.Busy, d.Name)
	}
	for _, f := range s.Functions {
		requests(fnRequests, f.Endpoint, f.Name)
		count(fnQueries, f.Endpoint.Queries, f.Name)
		hist(fnLatency, f.Endpoint.latency(), f.Name)
		if r := &f.Endpoint; r.SLOHits+r.SLOMisses > 0 { // most of ten thousand functions never get a request
			count(fnSLO, r.SLOHits, f.Name, "hit")
			count(fnSLO, r.SLOMisses, f.Name, "miss")
		}
		for _, p := range mergePlanned(f.Planned) {
			gauge(fnPlanned, p.Part, f.Name, p.Model, p.Version)
		}
		gauge(fnRefused, f.Refused, f.Name)
		gauge(fnCost, f.CostPerSecond, f.Name)
		f.learning(ch)
	}
	for i := range s.Models {
		m := &s.Models[i]
		gauge(modelReplicas, float64(m.Ready), m.Name, m.Version)
		if !m.active() {
			continue
		}
		requests(modelRequests, m.Endpoint, m.Name, m.Version)
		hist(modelLatency, m.Endpoint.latency(), m.Name, m.Version)
		for code, n := range m.Ended {
			count(modelQueries, n, m.Name, m.Version, code)
		}
		hist(modelQueue, m.QueueTime, m.Name, m.Version)
		hist(modelBatch, m.BatchSize, m.Name, m.Version)
		hist(modelWorker, m.WorkerTime, m.Name, m.Version)
		count(modelBatches, m.Batches, m.Name, m.Version)
		count(modelRetries, m.Retries, m.Name, m.Version)
		count(modelIsolated, m.Isolated, m.Name, m.Version)
		if st := m.Streams; st != nil {
			gauge(modelStreams, float64(st.Open), m.Name, m.Version)
			count(modelOutputs, st.Outputs, m.Name, m.Version)
			for reason, n := range map[string]uint64{"finished": st.Ended.Finished, "left": st.Ended.Left, "failed": st.Ended.Failed, "lost": st.Ended.Lost} {
				count(modelStreamEnds, n, m.Name, m.Version, reason)
			}
		}
		count(modelHedged, m.Hedged, m.Name, m.Version)
		count(modelHedgeWins, m.HedgeWins, m.Name, m.Version)
		gauge(modelQueued, float64(m.Queued), m.Name, m.Version)
		gauge(modelInFlight, float64(m.InFlight), m.Name, m.Version)
		gauge(modelCapacity, m.CapacityPerSecond, m.Name, m.Version)
		gauge(modelPlanned, m.PlannedPerSecond, m.Name, m.Version)
		hist(modelLate, m.DeadlineLate, m.Name, m.Version)
		for outcome, n := range m.Cache {
			if n > 0 { // most of ten thousand models never get a query
				count(modelCache, n, m.Name, m.Version, outcome)
			}
		}
	}
	for _, r := range s.Replicas {
		count(replicaStarts, r.Restarts, r.Name, r.Version)
		for reason, n := range r.Exits {
			if n > 0 || !r.Gone { // a counter that begins at 1 has, to Prometheus, never risen
				count(replicaExits, n, r.Name, r.Version, reason)
			}
		}
	}
	s.Lifecycle.collect(gauge, count, ch)
	s.Capacity.collect(gauge, hist)
	gauge(cacheBytes, float64(s.Cache.Bytes))
	gauge(cacheMaxBytes, float64(s.Cache.MaxBytes))
	gauge(cacheEntries, float64(s.Cache.Entries))
	count(cacheEvicted, s.Cache.Evicted)
	count(cacheCollided, s.Cache.Collisions)
	gauge(stateContexts, float64(s.State.Contexts))
	count(stateEvicted, s.State.Evicted)
	if s.State.HasStore {
		away := 0.0
		if s.State.Unavailable {
			away = 1
		}
		gauge(stateAway, away)
		gauge(statePending, float64(s.State.Pending))
		count(stateLost, s.State.Lost)
		count(stateElsewhere, s.State.Elsewhere)
		count(stateErrors, s.State.Errors)
	}
}

// active reports whether a version has a replica or has had a query. Most of ten thousand models
// have none of these for days, and fifteen zeros for each of them would be most of a scrape.
func (m *ModelSample) active() bool {
	return m.Ready > 0 || m.Queued > 0 || m.InFlight > 0 || m.Batches > 0 || len(m.Ended) > 0 || len(m.Cache) > 0 || !m.Endpoint.Empty()
}

// learning exports a function's feedback once there is any: most of ten thousand functions never get any.
func (f *FunctionSample) learning(ch chan<- prometheus.Metric) {
	l := f.Learning
	if l == nil {
		return
	}
	nonzero := func(d *prometheus.Desc, v float64, labels ...string) {
		if v > 0 {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, append([]string{f.Name}, labels...)...)
		}
	}
	for outcome, n := range map[string]uint64{
		"counted": l.Counted.Load(), "counted_in_part": l.InPart.Load(), "duplicate": l.Duplicates.Load(), "late": l.TooLate.Load(), "unknown": l.Unknown.Load(), "refused": l.Refused.Load(),
		"nothing_to_learn": l.Nothing.Load(), "models_asked": l.ModelsAsked.Load(), "models_taught": l.ModelsTaught.Load(),
	} {
		nonzero(fnFeedback, float64(n), outcome)
	}
	for outcome, n := range map[string]uint64{
		"same": l.ShadowsSame.Load(), "different": l.ShadowsDifferent.Load(), "failed": l.ShadowsFailed.Load(), "dropped": l.ShadowsDropped.Load(),
	} {
		nonzero(fnShadow, float64(n), outcome)
	}
	nonzero(fnLate, float64(l.Late.Load()))
	nonzero(fnDropped, float64(l.Dropped.Load()))
	for _, c := range f.Candidates {
		if c.Losses > 0 {
			ch <- prometheus.MustNewConstSummary(fnLoss, c.Losses, c.LossSum, nil, f.Name, c.Ref)
		}
		if len(f.Candidates) > 1 {
			ch <- prometheus.MustNewConstMetric(fnShare, prometheus.GaugeValue, c.Share, f.Name, c.Ref)
		}
	}
}

// mergePlanned merges candidates that are the same model version: a duplicate series would make the scrape invalid.
func mergePlanned(planned []PlannedSample) []PlannedSample {
	var out []PlannedSample
	for _, p := range planned {
		same := func(o PlannedSample) bool { return o.Model == p.Model && o.Version == p.Version }
		if i := slices.IndexFunc(out, same); i >= 0 {
			out[i].Part += p.Part
		} else {
			out = append(out, p)
		}
	}
	return out
}

func (r Reading) latency() Histogram {
	return Histogram{Count: r.Count, Sum: r.Seconds, Buckets: r.Buckets}
}
