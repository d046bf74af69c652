package sim

import (
	"fmt"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// Engine schedules the queries of one model version: the real machine, a baseline to compare it with, or one that was
// broken on purpose to test the checks.
type Engine interface {
	// AddFunction attaches a function and returns its sub-queue's index.
	AddFunction(weight float64) int32
	// Step reports an event. When it returns, the world reuses what in points to, except for items and plans.
	Step(now api.Nanos, in *Input)
	// Ready moves all decisions into a, as [scheduler.Machine.Ready] does.
	Ready(now api.Nanos, a *scheduler.Actions)
	NextWake() api.Nanos
	Snapshot(s *scheduler.Snapshot)
}

// InputKind says which fields of an Input are set.
type InputKind uint8

// One for each event of a [scheduler.Machine].
const (
	Arrive       InputKind = iota // Item
	Cancel                        // Item
	ReplicaReady                  // Replica, Depth, Places
	ReplicaDrain                  // Replica
	ReplicaGone                   // Replica, Begun
	FirstOutput                   // Replica, Result.ID, Result.EvalNanos
	BatchDone                     // Replica, Result
	SendFailed                    // Replica, Result.ID, Err
	Advance                       //
	TurnGranted                   // Nanos
	SetPlan                       // Plan
)

// Input is an event reported to an engine.
type Input struct {
	Kind    InputKind
	Item    *scheduler.Item
	Replica scheduler.ReplicaID
	Depth   int
	Places  int // how many batches the replica evaluates at once; 0: one
	Begun   func(batch uint64) bool
	Result  api.BatchResult
	Err     error
	Nanos   int64
	Plan    *scheduler.Plan
}

// machine is the real scheduler.
type machine struct{ m *scheduler.Machine }

// NewMachine is a [scheduler.Machine] as an Engine.
func NewMachine(cfg scheduler.Config) Engine { return machine{scheduler.New(cfg)} }

func (e machine) AddFunction(weight float64) int32          { return e.m.AddFunction(weight) }
func (e machine) Ready(now api.Nanos, a *scheduler.Actions) { e.m.Ready(now, a) }
func (e machine) NextWake() api.Nanos                       { return e.m.NextWake() }
func (e machine) Snapshot(s *scheduler.Snapshot)            { e.m.Snapshot(s) }

func (e machine) Step(now api.Nanos, in *Input) {
	switch in.Kind {
	case Arrive:
		e.m.Arrive(now, in.Item)
	case Cancel:
		e.m.Cancel(now, in.Item)
	case ReplicaReady:
		e.m.ReplicaReady(now, in.Replica, in.Depth)
		e.m.SetConcurrency(in.Replica, in.Places)
	case ReplicaDrain:
		e.m.ReplicaDrain(now, in.Replica)
	case ReplicaGone:
		e.m.ReplicaGone(now, in.Replica, in.Begun)
	case FirstOutput:
		e.m.FirstOutput(now, in.Replica, in.Result.ID, in.Result.EvalNanos)
	case BatchDone:
		e.m.BatchDone(now, in.Replica, &in.Result)
	case SendFailed:
		e.m.SendFailed(now, in.Replica, in.Result.ID, in.Err)
	case Advance:
		e.m.Advance(now)
	case TurnGranted:
		e.m.TurnGranted(now, in.Nanos)
	case SetPlan:
		e.m.SetPlan(*in.Plan)
	}
}

// String is the event as a transcript shows it.
func (in *Input) String() string {
	switch in.Kind {
	case Arrive:
		q := &in.Item.Query
		return fmt.Sprintf("arrive q%d f%d due in %v, %d B", q.ID, q.Function, span(q.Deadline-q.Arrived), q.InputBytes())
	case Cancel:
		return fmt.Sprintf("cancel q%d", in.Item.ID)
	case ReplicaReady:
		if in.Places > 0 {
			return fmt.Sprintf("ready r%d places %d", in.Replica, in.Places)
		}
		return fmt.Sprintf("ready r%d depth %d", in.Replica, in.Depth)
	case ReplicaDrain:
		return fmt.Sprintf("drain r%d", in.Replica)
	case ReplicaGone:
		return fmt.Sprintf("gone r%d", in.Replica)
	case FirstOutput:
		return fmt.Sprintf("first output r%d#%d in %v", in.Replica, in.Result.ID, span(api.Nanos(in.Result.EvalNanos)))
	case BatchDone:
		return fmt.Sprintf("done r%d#%d %v in %v", in.Replica, in.Result.ID, in.Result.Code, span(api.Nanos(in.Result.EvalNanos)))
	case SendFailed:
		return fmt.Sprintf("send failed r%d#%d: %v", in.Replica, in.Result.ID, in.Err)
	case Advance:
		return "advance"
	case TurnGranted:
		return fmt.Sprintf("turn of %v", span(api.Nanos(in.Nanos)))
	case SetPlan:
		return fmt.Sprintf("plan %v %+v %+v", in.Plan.Execution, in.Plan.Functions, in.Plan.Replicas)
	}
	return "unknown event"
}
