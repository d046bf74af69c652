package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
)

func TestMain(m *testing.M) {
	// Hertz, which serve links in, has a goroutine for the Date header.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/hertz/pkg/protocol.UpdateServerDate.func1"))
}

var then = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fakeGateway answers on both ports like a gateway with two models.
type fakeGateway struct {
	*httptest.Server
	mu sync.Mutex
	// requests are those that change something, with their bodies.
	requests []string
	// polls counts the requests for the model "slow": it is ready the third time.
	polls int
	// asks counts the requests for the traffic of the model "slow": version 1 serves from the third time on.
	asks int
	// changed counts the conflicts about the rules of the models "busy", which has two, and "contested", which has one
	// each time.
	changed int
	// plans counts the requests for the plan: the first one finds none.
	plans int
}

func newFakeGateway(t *testing.T) *fakeGateway {
	g := &fakeGateway{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", g.models)
	mux.HandleFunc("GET /v1/models/{name}", g.models)
	mux.HandleFunc("GET /v1/functions", g.functions)
	mux.HandleFunc("GET /v1/functions/{name}", g.functions)
	mux.HandleFunc("GET /v1/describe/model/{name}", g.describeModel)
	mux.HandleFunc("GET /v1/describe/function/{name}", func(w http.ResponseWriter, r *http.Request) {
		d := api.FunctionDescription{Function: digits(), Models: []api.ModelStatus{svm("2")}}
		if r.PathValue("name") == "ranked" {
			d.Function.Spec = api.FunctionSpec{Name: "ranked", Models: []string{"digits-svm@2", "digits-svm@1"}, Policy: api.PolicySpec{Name: api.PolicyPrefer}, Weight: 0.5, Budget: 40}.WithDefaults()
			d.Models = append(d.Models, svm("1"))
		}
		if r.PathValue("name") == "learning" {
			d.Function = learning()
		}
		if r.PathValue("name") == "replaced" {
			d.Function.Spec, d.Models = api.FunctionSpec{Name: "replaced", Models: []string{"replaced"}}.WithDefaults(), replaced()[1:]
		}
		answer(w, d)
	})
	mux.HandleFunc("GET /v1/describe/gateway", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, api.GatewayStatus{
			Node: &api.NodeStatus{
				Budget: api.ResourceStatus{CPU: 4, MemoryBytes: 8 << 30, GPU: 1}, Free: api.ResourceStatus{CPU: 1.5, MemoryBytes: 2 << 30}, From: "what the machine has", Awake: 2, Zygotes: 1, ZygoteBytes: 112 << 20,
			},
			Version: "v1.2.3", GoVersion: "go1.26", PID: 7, Started: then, Listen: "127.0.0.1:1337", Admin: "127.0.0.1:1338", Ready: true, Models: 3, Functions: 1, Replicas: 2,
			Revision: 42, Sources: []api.SourceStatus{{Name: "apply", Models: 2}, {Name: "/models", Models: 1, Problems: []string{"digits/5/xebec.yaml:3:1: inputs is missing", "words/1: no file xebec.yaml yet"}}},
			Cache: &api.CacheStatus{Entries: 12345, Pending: 3, Bytes: 3 << 20, HeldBytes: 4 << 20, MaxBytes: 256 << 20, Evicted: 7}, Store: &api.StoreStatus{Name: "/data/state.db", LastSuccess: then.Add(64 * time.Minute)},
		})
	})
	mux.HandleFunc("GET /v1/describe/scheduler", func(w http.ResponseWriter, _ *http.Request) { answer(w, g.plan()) })
	mux.HandleFunc("GET /v1/models/{name}/logs", logs)
	g.lifecycle(mux)
	mux.HandleFunc("POST /v1/apply", func(w http.ResponseWriter, r *http.Request) {
		body := g.note(r)
		if strings.Contains(body, `"kind":"Traffic"`) {
			if g.conflict(w, body) {
				return
			}
			_, name, _ := strings.Cut(body, `"name":"`)
			name, _, _ = strings.Cut(name, `"`)
			answer(w, api.Changes{Changes: []api.Change{{Kind: api.KindTraffic, Name: name, Action: api.Updated}}})
			return
		}
		for name, version := range map[string]string{"digits-svm": "2", "plain": "1"} {
			if strings.Contains(body, `"kind":"Model","name":"`+name+`"`) {
				change := api.Change{Kind: api.KindModel, Name: name, Version: version, Action: api.Updated}
				if name == "plain" && r.URL.Query().Has("dry_run") {
					change.Fields = []api.FieldChange{{Path: "replicas.max", Old: json.RawMessage("1"), New: json.RawMessage("4")}, {Path: "timeout", New: json.RawMessage(`"1m0s"`)}}
				}
				answer(w, api.Changes{Changes: []api.Change{change}, DryRun: r.URL.Query().Get("dry_run") == "true"})
				return
			}
		}
		dryRun := r.URL.Query().Get("dry_run") == "true"
		if strings.Contains(r.URL.Query().Get("base"), "refused") {
			w.WriteHeader(http.StatusBadRequest)
			answer(w, api.ErrorBody{Error: api.ErrorInfo{Code: "invalid_argument", Message: "manifest:1:1: …", Problems: []api.Problem{
				{Kind: api.KindFunction, Name: "digits", Path: "policy.eta", Message: "2: expected 0 to 1"}, {Kind: api.KindFunction, Name: "digits", Path: "models[1]", Message: "there is no model b"},
			}}})
			return
		}
		answer(w, api.Changes{DryRun: dryRun, Changes: []api.Change{
			{Kind: api.KindModel, Name: "slow", Version: "1", Action: api.Created}, {Kind: api.KindFunction, Name: "digits", Action: api.Unchanged},
		}})
	})
	mux.HandleFunc("POST /v1/deploy", func(w http.ResponseWriter, r *http.Request) {
		body := g.note(r)
		name := "slow"
		if strings.Contains(body, "/broken") {
			name = "broken"
		}
		answer(w, api.Changes{Changes: []api.Change{{Kind: api.KindModel, Name: name, Version: "1", Action: api.Created}, {Kind: api.KindFunction, Name: name, Action: api.Created}}})
	})
	mux.HandleFunc("DELETE /v1/models/{name}", func(w http.ResponseWriter, r *http.Request) {
		g.note(r)
		if r.PathValue("name") == "digits-svm" {
			refuse(w, api.Conflict, "function digits needs model digits-svm: delete it first")
			return
		}
		answer(w, api.Changes{Changes: []api.Change{{Kind: api.KindModel, Name: r.PathValue("name"), Version: "1", Action: api.Deleted}}})
	})
	mux.HandleFunc("DELETE /v1/functions/{name}", func(w http.ResponseWriter, r *http.Request) {
		g.note(r)
		answer(w, api.Changes{Changes: []api.Change{{Kind: api.KindFunction, Name: r.PathValue("name"), Action: api.Deleted}}})
	})
	mux.HandleFunc("POST /{function}/predict", g.predict)
	mux.HandleFunc("POST /{function}/feedback", g.feedback)
	mux.HandleFunc("POST /v2/models/{model}/versions/{version}/infer", g.infer)
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	return g
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that has gone fails its own test
}

func refuse(w http.ResponseWriter, code api.Code, message string) {
	w.WriteHeader(code.HTTPStatus())
	answer(w, api.ErrorBody{Error: api.ErrorInfo{Code: code.String(), Message: message}})
}

func (g *fakeGateway) note(r *http.Request) (body string) {
	all, _ := io.ReadAll(r.Body)
	body = string(all)
	var short bytes.Buffer
	if json.Compact(&short, all) == nil {
		body = short.String()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	line := r.Method + " " + r.URL.String()
	if ct := r.Header.Get("Content-Type"); ct != "" {
		line += " (" + ct + ")"
	}
	if slo := r.Header.Get("Xebec-Slo-Ms"); slo != "" {
		line += " slo=" + slo
	}
	if revision := r.Header.Get("If-Match"); revision != "" {
		line += " if-match=" + revision
	}
	if context := r.Header.Get("Xebec-Context"); context != "" {
		line += " context=" + context
	}
	g.requests = append(g.requests, strings.TrimSpace(line+" "+body))
	return body
}

// take returns the requests since the last call.
func (g *fakeGateway) take() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.requests
	g.requests = nil
	return all
}

func svm(version string) api.ModelStatus {
	m := api.ModelStatus{
		Spec: api.ModelSpec{
			Name: "digits-svm", Version: version,
			Inputs:   []api.TensorSpec{{Name: "input", DType: api.Float32, Shape: []int64{64}}},
			Outputs:  []api.TensorSpec{{Name: "output", DType: api.Int64}},
			Run:      api.RunSpec{Command: []string{"python", "model.py"}},
			Replicas: api.ReplicaBounds{Min: 1, Max: 2},
			Expect:   []api.ExpectSpec{{Rate: 400, From: "08:00", To: "18:30"}, {Rate: 0.5, From: "2026-01-31T08:00:00Z", To: "2026-02-01T08:00:00Z"}},
		}.WithDefaults(),
		Revision: 5, Dir: "/models/digits-svm", State: api.ModelReady, Serving: version == "2", ServingVersion: "2", Created: then, QueueDepth: 3, ObjectiveMicros: 10000,
		Queries: map[string]uint64{"ok": 1200, "overloaded": 5, "deadline_exceeded": 2},
		Capacity: &api.CapacityStatus{
			Wanted: 2, Granted: 1, ShortWhy: "there is no room", Reason: "rate", Rate: 640, PerReplica: 350, Panic: true, Measured: true, UsedCPU: 0.4, StartMS: 41.5,
			Takes: api.ResourceStatus{CPU: 1, MemoryBytes: 300 << 20}, ColdStarts: &api.ColdStartStatus{Count: 3, LastMS: 40, P50MS: 42, P99MS: 61},
			Unenforced: []string{"limits.pids (64) is not enforced."},
		},
		Hedges:     &api.HedgeStatus{Hedged: 7, Wins: 6},
		Conditions: []api.Condition{{Type: "Ready", Status: api.ConditionTrue, Reason: "ReplicasReady", Message: "1 of 1 replica is ready"}},
		Replicas: []api.ReplicaStatus{{
			ID: 4, PID: 4242, State: api.ReplicaReady, Since: then.Add(time.Minute), Restarts: 1, LastExit: "exit status 1 after 0.3 s",
			LastError: "ValueError: shapes do not match\n  in predict", LastErrorAt: then.Add(30 * time.Minute), Binding: "xebec-python/0.1.0", Ring: true,
			Cap: 64, Outstanding: 12, Batches: 300, Queries: 1207, Profile: api.Profile{Samples: 300, MeanMicros: 1250, P99Micros: 4100, InterceptMicros: 450, SlopeMicros: 200},
		}},
	}
	m.Version = api.VersionStatus{Phase: api.PhaseAvailable, Since: then.Add(time.Minute), Aspired: true, Source: "apply"}
	if version == "2" {
		m.Version.Labels = []string{"stable"}
		m.Version.Validation = &api.ValidationStatus{Passed: true, At: then.Add(50 * time.Second), TookMS: 800, WarmedUp: 20, Queries: 400, Matched: 390, Failed: 1, Expect: "labels", Extremes: 12, Refused: 3}
		m.Version.Rehearsal = &api.RehearsalStatus{At: then.Add(55 * time.Second), TookMS: 28, Replicas: 2, Recent: 8, Evaluated: 128, Failed: 3, Reason: "svm@2 has lost its replicas"}
		m.Version.Drift = &api.DriftStatus{Validated: 400, Served: 5000, Input: 0.31, Output: 0.02, Features: []api.FeatureDrift{{Name: "input[3]", PSI: 0.31, Validated: "0.25", Served: "0.75"}, {Name: "output", PSI: 0.02}}}
		accuracy := 0.9325
		m.Accuracy, m.Cache = &accuracy, &api.ModelCacheStatus{On: true, Hits: 600, Misses: 300, Coalesced: 100, Bypassed: 2}
		m.Spec.Batching.Policy, m.Spec.Cost, m.Spec.Device = api.BatchQuantile, 0.05, "gpu0"
	}
	return m
}

func simple(name string, state api.ModelState, replicas ...api.ReplicaStatus) api.ModelStatus {
	m := svm("1")
	m.Spec.Name, m.State, m.Replicas, m.Serving, m.Created, m.QueueDepth, m.Queries = name, state, replicas, true, then.Add(time.Hour), 0, nil
	m.Version = api.VersionStatus{Phase: api.PhaseLoading, Aspired: true, Source: "/models"}
	if state == api.ModelReady {
		m.Version.Phase = api.PhaseAvailable
	}
	return m
}

// replaced are the versions of a model whose newest one has failed, and whose older one is about to serve.
func replaced() []api.ModelStatus {
	older, failed := simple("replaced", api.ModelReady), simple("replaced", api.ModelFailed)
	failed.Spec.Version, older.Serving, failed.Serving = "2", false, false
	return []api.ModelStatus{older, failed}
}

func (g *fakeGateway) models(w http.ResponseWriter, r *http.Request) {
	broken := simple("broken", api.ModelFailed, api.ReplicaStatus{ID: 9, State: api.ReplicaBackoff, Since: then.Add(time.Hour), Restarts: 3, LastExit: "exit status 1 after 0.3 s"})
	broken.Logs = []api.LogLine{{Time: then, Version: "1", Replica: 8, Stream: "stderr", Text: "ModuleNotFoundError: No module named 'sklearn'"}}
	switch name := r.PathValue("name"); name {
	case "":
		answer(w, api.ModelList{Models: []api.ModelStatus{simple("idle", api.ModelIdle), svm("2"), svm("1")}})
	case "digits-svm":
		answer(w, api.ModelList{Models: []api.ModelStatus{svm("1"), svm("2")}})
	case "slow":
		g.mu.Lock()
		g.polls++
		polls := g.polls
		g.mu.Unlock()
		m := simple("slow", api.ModelStarting)
		switch polls % 3 {
		case 2: // its replicas are ready, and it is being validated
			m = simple("slow", api.ModelReady)
			m.Version.Phase = api.PhaseValidating
		case 0:
			m = simple("slow", api.ModelReady)
		}
		answer(w, api.ModelList{Models: []api.ModelStatus{m}})
	case "plain":
		answer(w, api.ModelList{Models: []api.ModelStatus{simple("plain", api.ModelReady)}})
	case "never":
		answer(w, api.ModelList{Models: []api.ModelStatus{simple("never", api.ModelStarting)}})
	case "rejected":
		m := simple("rejected", api.ModelIdle)
		m.Version = api.VersionStatus{
			Phase: api.PhaseRejected, Since: then.Add(time.Hour), Aspired: true, Source: "/models", Reason: "accuracy 0.5 is below min_accuracy 0.9",
			Validation: &api.ValidationStatus{Queries: 10, Matched: 5, Expect: "labels", Reason: "accuracy 0.5 is below\nmin_accuracy 0.9"},
		}
		answer(w, api.ModelList{Models: []api.ModelStatus{m}})
	case "broken":
		answer(w, api.ModelList{Models: []api.ModelStatus{broken}})
	case "replaced":
		answer(w, api.ModelList{Models: replaced()})
	default:
		refuse(w, api.NotFound, fmt.Sprintf("no model %q", name))
	}
}

// infer answers [1.5, 2] as binary data of the Open Inference Protocol.
func (g *fakeGateway) infer(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("version") != "2" {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":"no such version"}`)
		return
	}
	const head = `{"outputs":[{"name":"y","shape":[1,2],"datatype":"FP64","parameters":{"binary_data_size":16}}]}`
	w.Header().Set("Inference-Header-Content-Length", strconv.Itoa(len(head)))
	_, _ = w.Write(append([]byte(head), float64s(1.5, 2)...))
}

// feedback accepts even query ids and has forgotten odd ones. In a batch, the id modulo 3 decides.
func (g *fakeGateway) feedback(w http.ResponseWriter, r *http.Request) {
	var body struct {
		QueryID uint64 `json:"query_id"`
		Batch   []struct {
			QueryID uint64 `json:"query_id"`
		} `json:"feedback_batch"`
	}
	if err := json.Unmarshal([]byte(g.note(r)), &body); err != nil || r.PathValue("function") == "strange" {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<html>not a gateway</html>")
		return
	}
	const forgotten = "the query was answered too long ago"
	if body.Batch == nil {
		if body.QueryID%2 == 1 {
			w.WriteHeader(http.StatusGone)
			answer(w, map[string]string{"error": "Query processing error", "cause": forgotten, "code": "gone"})
			return
		}
		answer(w, map[string]any{"query_id": body.QueryID, "status": "counted"})
		return
	}
	results := make([]map[string]any, len(body.Batch))
	for i, it := range body.Batch {
		if r.PathValue("function") == "full" && it.QueryID >= 2*feedbackItems {
			w.WriteHeader(http.StatusServiceUnavailable)
			answer(w, map[string]string{"error": "Query processing error", "cause": "the gateway is shutting down", "code": "shutting_down"})
			return
		}
		results[i] = map[string]any{"query_id": it.QueryID, "status": []string{"counted", "late", "duplicate"}[it.QueryID%3]}
		if it.QueryID%3 == 1 {
			results[i]["cause"] = forgotten
		}
	}
	answer(w, map[string]any{"feedback_results": results})
}

func digits() api.FunctionStatus {
	return api.FunctionStatus{
		Spec:  api.FunctionSpec{Name: "digits", Models: []string{"digits-svm"}, SLO: 20 * time.Millisecond, Default: json.RawMessage("-1")}.WithDefaults(),
		Ready: true, Models: []string{"digits-svm@2"}, Created: then, Queries: map[string]uint64{"ok": 1200, "deadline_exceeded": 7}, Defaults: 6,
	}
}

// learning is a function whose policy learns.
func learning() api.FunctionStatus {
	f := digits()
	f.Spec = api.FunctionSpec{
		Name: "learning", Models: []string{"digits-svm", "digits-nn@1"}, Default: json.RawMessage("-1"), MinConfidence: 0.6, Shadow: map[string]float64{"digits-svm@3": 0.05},
		Policy: api.PolicySpec{Name: api.PolicyExp4, Params: map[string]any{"eta": 0.1}}, Loss: api.LossSpec{Kind: api.LossAbsolute, Scale: 10},
	}.WithDefaults()
	f.Models = append(f.Models, "digits-nn@1")
	f.Policy = &api.PolicyStatus{
		Name: "exp4", Mode: api.PolicyAsksSeveral, Learns: true, ContextsInMemory: 17, Late: 12, Dropped: 3,
		Candidates: []api.CandidateLearning{
			{Ref: "digits-svm", Model: "digits-svm@2", Share: 1, Weight: 0.71875, Count: 1200, MeanLoss: 0.0525, Mean: []float64{4.5}},
			{Ref: "digits-nn@1", Model: "digits-nn@1", Share: 0.64, Weight: 0.28125, Count: 768, MeanLoss: 0.25, Mean: []float64{1, 2, 3, 4, 5}, Late: 12},
		},
		Contexts: []api.ContextStatus{{Context: "user\t17", Candidates: []api.CandidateLearning{{Ref: "digits-svm", Model: "digits-svm@2", Share: 1, Weight: 0.5}, {Ref: "digits-nn@1", Share: 1, Weight: 0.5, Count: 2, MeanLoss: 1}}}},
		Feedback: api.FeedbackStatus{Counted: 1200, Duplicate: 3, Late: 2, Unknown: 1, Refused: 4, Nothing: 5, Asked: 6, Taught: 7},
		Store:    &api.StoreStatus{Name: "redis://127.0.0.1:6379/0", Shared: true, Away: true, Pending: 40, Lost: 2, LastSuccess: then.Add(time.Hour), LastError: "dial tcp:\nconnection refused", LastErrorAt: then.Add(64 * time.Minute)},
	}
	f.Shadow = &api.ShadowStatus{Models: []api.ShadowModelStatus{{Ref: "digits-svm@3", Model: "digits-svm@3", Part: 0.05}}, Same: 50, Different: 4, Failed: 1, Dropped: 2}
	return f
}

// plan is first that of a gateway that has just started, then that of a gateway under load.
func (g *fakeGateway) plan() api.SchedulerStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.plans++
	if g.plans == 1 {
		return api.SchedulerStatus{State: api.SchedulerAsleep, EpochMicros: 10000}
	}
	return api.SchedulerStatus{
		State: api.SchedulerAwake, EpochMicros: 10000, Epochs: 6500, PlannedAt: then.Add(64 * time.Minute), PlanMicros: 41, PlanP99Micros: 180,
		Functions: []api.FunctionPlanStatus{
			{Name: "digits", Weight: 2, QueriesPerSecond: 1234.56, SLOMicros: 20000, BudgetPerSecond: 40, CostPerSecond: 40, Refused: 0.03125, RefusedWhy: "no candidate has capacity left",
				Candidates: []api.CandidateStatus{
					{Model: "digits-nn@1", Evaluated: 0.648, Gain: 1, Cost: 0.05, Why: "the budget\nis spent"},
					{Model: "digits-svm@2", Evaluated: 0.32075, Gain: 0.5, Why: "the capacity of the model"},
				}},
			{Name: "words", Weight: 1, QueriesPerSecond: 0.25, SLOMicros: 1000000, Candidates: []api.CandidateStatus{{Model: "words@1", Evaluated: 1, Gain: 1, Why: "the only candidate"}}},
		},
		Models: []api.ModelPlanStatus{
			{Model: "digits-nn@1", Known: true, CapacityPerSecond: 1000, DemandPerSecond: 1234.56, PlannedPerSecond: 800, Utilisation: 0.8, DirectShed: 0.5, Device: "gpu0",
				Execution: "whole", ExecutionWhy: "large batches pay", HoldMicros: 500, HoldWhy: "another query is expected within it",
				Replicas: []api.ReplicaPlanStatus{
					{ID: 4, CapLearned: 64, CapPlanned: 16, CapWhy: "a larger batch would make words@1 late", Shares: []api.ShareStatus{{Function: "digits", Share: 2}, {Share: 1}}},
					{ID: 5, CapLearned: 48},
				}},
			{Model: "words@1", DemandPerSecond: 0.25, PlannedPerSecond: 0.25, Device: "gpu0", Execution: "stream", ExecutionWhy: "batching saves nothing", Replicas: []api.ReplicaPlanStatus{}},
			{Model: "plain@1", Known: true, CapacityPerSecond: 1e6, Execution: "split", ExecutionWhy: "replicas are idle", Replicas: []api.ReplicaPlanStatus{}},
		},
		Devices: []api.DevicePlanStatus{
			{Name: "gpu0", Busy: 1.25, Tenants: []api.TenantStatus{{Model: "digits-nn@1", TurnMicros: 7500, Share: 0.75}, {Model: "words@1", TurnMicros: 2500, Share: 0.25}}},
			{Name: "gpu1", Tenants: []api.TenantStatus{}},
		},
	}
}

func (g *fakeGateway) functions(w http.ResponseWriter, r *http.Request) {
	switch name := r.PathValue("name"); name {
	case "", "digits":
		answer(w, api.FunctionList{Functions: []api.FunctionStatus{digits()}})
	default:
		refuse(w, api.NotFound, fmt.Sprintf("no function %q", name))
	}
}

func (g *fakeGateway) describeModel(w http.ResponseWriter, r *http.Request) {
	switch name := r.PathValue("name"); name {
	case "digits-svm":
	case "asleep":
		m := simple("asleep", api.ModelIdle)
		m.Capacity.Profile = &api.KnownProfile{InterceptMicros: 2000, SlopeMicros: 100, P99Micros: 5000, Batches: 40, MeanBatch: 3}
		answer(w, api.ModelDescription{Models: []api.ModelStatus{m}, Functions: []api.FunctionStatus{}})
		return
	case "rejected":
		m := simple("rejected", api.ModelIdle)
		m.Version = api.VersionStatus{
			Phase: api.PhaseRejected, Since: then.Add(time.Hour), Source: "/models", Reason: "accuracy 0.5 is below min_accuracy 0.9",
			Validation: &api.ValidationStatus{Queries: 10, Matched: 5, Expect: "labels", Reason: "accuracy 0.5 is below\nmin_accuracy 0.9"},
		}
		answer(w, api.ModelDescription{Models: []api.ModelStatus{m}, Functions: []api.FunctionStatus{}})
		return
	default:
		refuse(w, api.NotFound, fmt.Sprintf("no model %q", name))
		return
	}
	m := svm("2")
	m.Logs = []api.LogLine{{Time: then, Version: "2", Replica: 4, Stream: "stdout", Text: "loaded"}, {Time: then, Version: "2", Replica: 4, Stream: "stderr", Text: "\twarning: slow"}}
	t := dividedTraffic()
	answer(w, api.ModelDescription{Models: []api.ModelStatus{m, svm("1")}, Traffic: &t, Functions: []api.FunctionStatus{digits()}})
}

func logs(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	write := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch r.PathValue("name") {
	case "gone":
		write(api.LogLine{Time: then, Version: "1", Replica: 1, Stream: "stdout", Text: "before"})
		write(api.ErrorBody{Error: api.ErrorInfo{Code: "internal", Message: "the log is gone"}})
	case "digits-svm":
		write(api.LogLine{Time: then, Version: "1", Replica: 1, Stream: "stdout", Text: "asked for " + q.Encode()})
		write(api.LogLine{Time: then, Version: "1", Replica: 2, Stream: "stderr", Text: "\x1b[31mred\x1b[0m"})
	default:
		refuse(w, api.NotFound, fmt.Sprintf("no model %q", r.PathValue("name")))
	}
}

func (g *fakeGateway) predict(w http.ResponseWriter, r *http.Request) {
	g.note(r)
	const good = `{"query_id":1,"output":[1.50,2],"default":false,"confidence":1,"models":["digits-svm@2"]}`
	const byDefault = `{"query_id":2,"output":-1,"default":true,"default_explanation":"no prediction arrived within the latency objective","confidence":0,"models":[]}`
	const failed = `{"query_id":3,"error":"Query processing error","cause":"the model failed on this input","code":"model_error"}`
	status, body := 200, ""
	switch r.PathValue("function") {
	case "digits":
		body = good
	case "late":
		body = byDefault
	case "batch":
		body = `{"batch_predictions":[` + good + "," + byDefault + "," + failed + `]}`
	case "failing":
		status, body = 502, failed
	case "strange":
		status, body = 404, "<html>not a gateway</html>"
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}
