package api

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// ModelSpec declares one version of a model: its inputs and outputs, how its worker starts, and how the gateway treats
// it.
//
// A field's zero value means its default. [ModelSpec.WithDefaults] fills the defaults in and [ModelSpec.Validate]
// checks the result. Package manifest reads and writes the YAML form.
type ModelSpec struct {
	Name    string `json:"name"`
	Version string `json:"version" field:"version"`
	// Inputs and Outputs are the signature of one query. The batch dimension is never part of a shape.
	Inputs []TensorSpec `json:"inputs"`
	// Columns declare inputs that are all scalars, in place of Inputs. WithDefaults moves them there.
	Columns []ColumnSpec `json:"columns,omitempty"`
	Outputs []TensorSpec `json:"outputs"`
	Run     RunSpec      `json:"run"`
	// Python is the virtual environment whose interpreter "python" means in the command, relative to Dir. If it is
	// empty, it is the gateway's own environment.
	Python string `json:"python,omitempty"`
	// Preload lists the modules that a zygote of that environment imports before it forks the worker. If it is empty,
	// each worker starts an interpreter of its own.
	Preload  []string      `json:"preload,omitempty"`
	Replicas ReplicaBounds `json:"replicas"`
	// Resources is what one replica needs, Limits the most that it may use.
	Resources ResourceSpec `json:"resources,omitzero"`
	Limits    LimitSpec    `json:"limits,omitzero"`
	// Expect has hints of future load.
	Expect   []ExpectSpec `json:"expect,omitempty" field:"one"`
	Batching BatchingSpec `json:"batching"`
	// Retry says whether the gateway may retry a query, once, after the replica that evaluated it died. nil means true.
	Retry *bool `json:"retry,omitempty"`
	// Timeout is the shortest time after which a replica may count as hung: it does when it takes longer for a batch than
	// max(10 × its P99, Timeout, 0.8 s). 0 means DefaultModelTimeout until the replica's speed is known, and no bound of
	// its own then, unless the model has Calls.
	Timeout time.Duration `json:"timeout,omitempty" field:"positive"`
	// StartTimeout is how long a replica may take from the start of its process until it is ready; it is ended and started again when it
	// takes longer. 0 means DefaultStartTimeout.
	StartTimeout time.Duration `json:"start_timeout,omitempty" field:"positive"`
	// Task says what the model is to clients of OpenAI's API: TaskEmbed, TaskGenerate or TaskChat. Empty: nothing, they cannot ask it.
	Task string `json:"task,omitempty"`
	// Stream says that the model answers each query with a stream of outputs. Nothing of it is cached.
	Stream bool `json:"stream,omitempty"`
	// StreamIdle is how long a replica may take from one output of a stream to the next; it is ended when it takes longer. 0 means
	// DefaultStreamIdle.
	StreamIdle time.Duration `json:"stream_idle,omitempty" field:"positive"`
	Queue      QueueSpec     `json:"queue"`
	// Affinity is AffinityContext if queries with the same context go to the same replica; empty if any replica may have
	// them.
	Affinity string `json:"affinity,omitempty" field:"switch"`
	// Calls are the functions and models that the model's code may call while it evaluates a query.
	Calls []string `json:"calls,omitempty"`
	// Cache is CacheOn, or CacheOff for a model whose outputs do not depend on its inputs alone.
	Cache string `json:"cache,omitempty" field:"switch"`
	// BusyPoll is how long a replica that expects a query soon looks for it before it sleeps. 0 means that it sleeps at once.
	BusyPoll time.Duration `json:"busy_poll,omitempty" field:"positive"`
	// Cost is the cost of evaluating one query, in a unit that the operator chooses. Functions' budgets use the same
	// unit. 0 means free.
	Cost float64 `json:"cost,omitempty"`
	// Device names a device that the model's replicas share, in turns, with other models; empty means none. The
	// gateway, not this package, knows which devices exist.
	Device string `json:"device,omitempty"`
	// Warmup and Validation say what a replica and a version must do before the version gets traffic. nil means
	// nothing.
	Warmup     *WarmupSpec   `json:"warmup,omitempty"`
	Validation *ValidateSpec `json:"validate,omitempty"` // "validate" in a manifest
	// Dir is the directory that the spec's relative paths refer to and in which the worker starts. Package manifest
	// resolves it: it defaults to the manifest's directory, and a relative Dir is relative to that directory.
	Dir string `json:"dir,omitempty"`
	// Digest names the files in Dir that the version has: a version is its bytes. The gateway takes it when the version is declared.
	// DigestNone means that the files are not the version's alone, and replicas run from Dir as it is. It is empty until it was taken.
	Digest string `json:"digest,omitempty"`
	// ImageDigest names the bytes of Run.Image that the version runs, whatever that name means later: the image's id ("sha256:…"), or its
	// digest in a repository ("NAME@sha256:…"), which an engine that lacks it can pull. If it is empty, the gateway takes that of the
	// version's first replica that is ready.
	ImageDigest string `json:"image_digest,omitempty"`
	// Interpreter is the program that "python" meant when the version was declared. It is for people: nothing depends on it.
	Interpreter string `json:"interpreter,omitempty"`
}

// ColumnSpec is an input that is one element of a query: a column of a table of queries.
type ColumnSpec struct {
	Name  string `json:"name"`
	DType DType  `json:"dtype"`
}

// BatchingSpec says how queries are grouped into batches.
type BatchingSpec struct {
	// Policy is BatchAIMD, BatchQuantile, BatchFixed or BatchNone.
	Policy string `json:"policy,omitempty"`
	// Max is the largest number of queries in a batch. With BatchFixed it is the size of every batch.
	Max int `json:"max,omitempty" field:"min=1"`
	// MaxBytes is the largest number of input bytes in a batch.
	MaxBytes int64 `json:"max_bytes,omitempty" field:"min=1"`
	// Hold is how long a batch that is not full waits for more queries.
	Hold time.Duration `json:"hold,omitempty"`
	// Objective is the evaluation time of a batch that BatchAIMD and BatchQuantile aim at. 0 means two fifths of the
	// smallest SLO among the model's functions.
	Objective time.Duration `json:"objective,omitempty" field:"positive"`
	// Pad fills a fixed batch with copies of its last query, for models compiled for one batch size.
	Pad bool `json:"pad,omitempty"`
}

// QueueSpec bounds the queue of a model version.
type QueueSpec struct {
	// Max is the largest number of queries that may wait.
	Max int `json:"max,omitempty" field:"min=1"`
}

// The batching policies.
const (
	// BatchAIMD raises the largest batch by a small step while the objective is met, and lowers it by a factor when it
	// is missed.
	BatchAIMD = "aimd"
	// BatchQuantile derives the largest batch from a regression of the 99th percentile of evaluation times on batch
	// sizes.
	BatchQuantile = "quantile"
	BatchFixed    = "fixed"
	BatchNone     = "none"
)

// The settings of a model's prediction cache.
const (
	CacheOff = "off"
	CacheOn  = "on"
)

// AffinityContext is the affinity of a model whose replicas keep something for each context: a session's state, or its part of
// a cache.
const AffinityContext = "context"

// Defaults of a model's spec.
const (
	DefaultVersion = "1"
	// DefaultBatchMax lets AIMD and quantile regression find their own cap. It is above the caps at which the measured
	// linear models settle.
	DefaultBatchMax = 4096
	// DefaultBatchBytes fits one request body of the default limit.
	DefaultBatchBytes = 64 << 20 //xebec:limit input bytes in a batch, unless the model sets `batching.max_bytes`
	// DefaultQueueMax is four of the largest default batches.
	DefaultQueueMax = 4 * DefaultBatchMax //xebec:limit queries that wait, unless the model sets `queue.max`
	// DefaultModelTimeout is generous: the first batch of a model that compiles itself may take many seconds, and
	// killing the replica would restart the compilation.
	DefaultModelTimeout = 30 * time.Second //xebec:limit silence of a replica whose speed is not known yet, unless the model sets `timeout`
	// DefaultStartTimeout is enough for a large model on a cold disk, which takes minutes.
	DefaultStartTimeout = 10 * time.Minute //xebec:limit from a process's start to a ready worker, unless the model sets `start_timeout`
	// DefaultStreamIdle is generous too: a language model may think for seconds between two words.
	DefaultStreamIdle = 30 * time.Second //xebec:limit silence of a replica between two outputs of a stream, unless the model sets `stream_idle`
)

// MinBusyPoll and MaxBusyPoll bound busy polling, unless it is 0. Replicas are told whole microseconds. With more than a millisecond a core
// would be busy for a few hundred queries a second.
const (
	MinBusyPoll = time.Microsecond
	MaxBusyPoll = time.Millisecond //xebec:limit `busy_poll` and `--busy-poll`
)

// CheckBusyPoll checks a bound of busy polling.
func CheckBusyPoll(d time.Duration) error {
	if d != 0 && (d < MinBusyPoll || d > MaxBusyPoll) {
		return fmt.Errorf("%s: expected %s to %s", d, MinBusyPoll, MaxBusyPoll)
	}
	return nil
}

// Limits of a model's spec. They keep every size that is computed from a spec sane.
const (
	// MaxTensors is the worker protocol's limit for inputs, and for outputs.
	MaxTensors = 255 //xebec:limit inputs, and outputs, of a model
	// MaxTensorNameBytes is enough for a sentence.
	MaxTensorNameBytes = 255 //xebec:limit a tensor's name
	// MaxSignatureBytes leaves a quarter of the worker protocol's largest frame (64 KiB) to the other fields of a handshake.
	MaxSignatureBytes = 48 << 10 //xebec:limit names and shapes of a model's inputs and outputs, as the worker protocol has them
	// MaxReplicas exceeds what one machine can run. It catches typing errors.
	MaxReplicas = 1024 //xebec:limit replicas of a version
	// MaxBatch bounds the tables of a batch block: 65,536 entries of 16 bytes are 1 MiB.
	MaxBatch = 65536 //xebec:limit queries in a batch
	// MaxBatchBytes bounds a segment's slab to a small multiple of it.
	MaxBatchBytes = 4 << 30 //xebec:limit `batching.max_bytes`
	// MaxQueue bounds the memory of a queue that no replica drains.
	MaxQueue = 1 << 20 //xebec:limit `queue.max`
	// MaxHold bounds the hold: a longer one no longer improves throughput and is probably an error in the unit.
	MaxHold = 100 * time.Millisecond //xebec:limit `batching.hold`
	// MaxTimeout bounds how long a hung replica can stay.
	MaxTimeout = time.Hour //xebec:limit `timeout`, `start_timeout` and `batching.objective`
	// MaxCost leaves room for any unit of money or energy, and keeps sums of costs exact enough to compare.
	MaxCost = 1e9 //xebec:limit `cost`
	// MaxArgs, MaxEnv and MaxRunBytes stay well below the kernel's limits for execve (128 KiB a string, 2 MiB together).
	MaxArgs     = 256      //xebec:limit words of `run.command`
	MaxEnv      = 256      //xebec:limit variables of `run.env`
	MaxRunBytes = 64 << 10 //xebec:limit command and environment together
	// MaxCalls is more than a pipeline has stages.
	MaxCalls = 32 //xebec:limit names in `calls` of a model
	// MaxPathBytes is PATH_MAX.
	MaxPathBytes = 4096 //xebec:limit a path in a manifest
)

// DigestNone is the digest of a version whose replicas run from its directory as it is.
const DigestNone = "none"

// digestForm is that of a digest of files: see package containers/snapshot.
var digestForm = regexp.MustCompile("^sha256:[0-9a-f]{64}$")

// imageDigestForm is that of ModelSpec.ImageDigest. The name is not judged further: the container engine does that.
var imageDigestForm = regexp.MustCompile("^([A-Za-z0-9][A-Za-z0-9._/:-]*@)?sha256:[0-9a-f]{64}$")

// ID returns the name and version.
func (m *ModelSpec) ID() ModelID { return ModelID{Name: m.Name, Version: m.Version} }

// Signature returns the model's inputs and outputs. It shares the spec's slices.
func (m *ModelSpec) Signature() Signature { return Signature{Inputs: m.Inputs, Outputs: m.Outputs} }

// Fixed names the first immutable field in which another spec of the same version differs: the signature, or what the
// worker runs with. It is empty if other only treats the version differently.
func (m *ModelSpec) Fixed(other *ModelSpec) string {
	switch {
	case !sameTensors(m.Inputs, other.Inputs):
		return "inputs"
	case !sameTensors(m.Outputs, other.Outputs):
		return "outputs"
	case !slices.Equal(m.Run.Command, other.Run.Command) || m.Run.Image != other.Run.Image || m.Run.isolation() != other.Run.isolation() || m.Run.network() != other.Run.network() || !maps.Equal(m.Run.Env, other.Run.Env):
		return "run"
	case m.Python != other.Python:
		return "python"
	case m.Device != other.Device:
		return "device"
	case !slices.Equal(m.Preload, other.Preload):
		return "preload"
	case m.Limits != other.Limits:
		return "limits"
	case m.Stream != other.Stream:
		return "stream"
	case m.Task != other.Task:
		return "task"
	case !slices.Equal(m.Calls, other.Calls):
		return "calls"
	case m.Resources.GPU != other.Resources.GPU:
		return "resources.gpu"
	case m.Digest != "" && other.Digest != "" && m.Digest != other.Digest: // last: its bytes are looked at where all else agrees
		return "digest"
	case !sameImage(m.ImageDigest, other.ImageDigest):
		return "image_digest"
	}
	return ""
}

// sameImage reports whether two digests of images may name the same bytes. A digest says so with or without a repository's name.
func sameImage(a, b string) bool {
	return a == "" || b == "" || a[strings.LastIndexByte(a, '@')+1:] == b[strings.LastIndexByte(b, '@')+1:]
}

// SameSignature reports whether answers of the two versions are interchangeable: they have the same input and output
// tensors.
func (m *ModelSpec) SameSignature(other *ModelSpec) bool {
	return sameTensors(m.Inputs, other.Inputs) && sameTensors(m.Outputs, other.Outputs)
}

func sameTensors(a, b []TensorSpec) bool {
	return slices.EqualFunc(a, b, func(x, y TensorSpec) bool {
		return x.Name == y.Name && x.DType == y.DType && x.Media == y.Media && slices.Equal(x.Shape, y.Shape)
	})
}

// Retries reports whether the gateway may retry, once, a query whose replica died.
func (m *ModelSpec) Retries() bool { return m.Retry == nil || *m.Retry }

// FixedInputBytes is the number of bytes of one query's inputs of fixed size. Inputs of varying size count as 0.
func (m *ModelSpec) FixedInputBytes() int64 {
	var n int64
	for _, t := range m.Inputs {
		n += int64(t.ItemBytes())
	}
	return n
}

// WithDefaults returns a copy with every unset field that has a default set to it. It is idempotent. Replica bounds {0,
// 0} mean {1, 1}; {0, n} is a model that may sleep; {n, 0} means {n, n}.
func (m ModelSpec) WithDefaults() ModelSpec {
	if len(m.Inputs) == 0 && len(m.Columns) > 0 {
		m.Inputs = make([]TensorSpec, len(m.Columns))
		for i, c := range m.Columns {
			m.Inputs[i] = TensorSpec{Name: c.Name, DType: c.DType, Shape: []int64{}}
		}
		m.Columns = nil
	}
	if m.Version == "" {
		m.Version = DefaultVersion
	}
	m.Replicas = m.Replicas.withDefaults()
	b := &m.Batching
	if b.Policy == "" {
		b.Policy = BatchAIMD
	}
	if b.Max == 0 {
		switch b.Policy {
		case BatchAIMD, BatchQuantile:
			b.Max = DefaultBatchMax
		case BatchNone:
			b.Max = 1
		}
	}
	if b.MaxBytes == 0 {
		b.MaxBytes = DefaultBatchBytes
	}
	if m.Retry == nil {
		yes := true
		m.Retry = &yes
	}
	if m.Queue.Max == 0 {
		m.Queue.Max = DefaultQueueMax
	}
	if m.Cache == "" {
		m.Cache = CacheOn
		if m.Stream || m.Affinity != "" || len(m.Calls) > 0 { // the answers of what it calls change with their versions
			m.Cache = CacheOff
		}
	}
	m.Warmup, m.Validation = m.Warmup.withDefaults(), m.Validation.withDefaults()
	return m
}

// Validate checks a spec that has its defaults. The error is nil or [FieldErrors] with all problems.
func (m ModelSpec) Validate() error {
	var e FieldErrors
	e.check("name", CheckName("model", m.Name))
	e.check("version", CheckVersion(m.Version))
	if len(m.Columns) > 0 {
		e.add("columns", "is there beside inputs: expected one of them")
	}
	inputs := validateTensors(&e, "inputs", m.Inputs)
	outputs := validateTensors(&e, "outputs", m.Outputs)
	if n := (&Signature{Inputs: m.Inputs, Outputs: m.Outputs}).EncodedBytes(); inputs && outputs && n > MaxSignatureBytes {
		e.add("inputs", "and outputs take %d bytes in the worker protocol: expected at most %d; shorten their names, or declare one input with a shape for columns of one type", n, MaxSignatureBytes)
	}
	m.Run.validate(&e)
	validatePath(&e, "python", m.Python)
	validatePath(&e, "interpreter", m.Interpreter)
	if m.Digest != "" && m.Digest != DigestNone && !digestForm.MatchString(m.Digest) {
		e.add("digest", "%.100q: expected %q, sha256: with 64 digits 0-9a-f, or leave it out: the gateway takes it", m.Digest, DigestNone)
	}
	m.validateImageDigest(&e)
	validatePreload(&e, m.Preload, &m.Run)
	m.Replicas.validate(&e)
	m.Resources.validate(&e, m.Device)
	m.Limits.validate(&e, &m.Resources)
	validateExpect(&e, m.Expect)
	m.Batching.validate(&e)
	if inputs && m.Batching.MaxBytes > 0 && m.FixedInputBytes() > m.Batching.MaxBytes {
		e.add("batching.max_bytes", "%d is less than one query's inputs (%d bytes): no batch could hold a query", m.Batching.MaxBytes, m.FixedInputBytes())
	}
	if m.Timeout < 0 || m.Timeout > MaxTimeout {
		e.add("timeout", "%s: expected more than 0 and at most %s", m.Timeout, MaxTimeout)
	}
	if m.Queue.Max < 1 || m.Queue.Max > MaxQueue {
		e.add("queue.max", "%d: expected 1 to %d queries", m.Queue.Max, MaxQueue)
	}
	if m.Cache != CacheOff && m.Cache != CacheOn {
		e.add("cache", "%q: expected %q or %q", m.Cache, CacheOff, CacheOn)
	}
	if m.Affinity != "" && m.Affinity != AffinityContext {
		e.add("affinity", "%q: expected %q, or leave it out", m.Affinity, AffinityContext)
	}
	if m.Stream && m.Cache == CacheOn {
		e.add("cache", "%q: streams are not cached; leave it out", m.Cache)
	}
	if m.Stream && m.Batching.Pad {
		e.add("batching.pad", "a model with stream: true gets its queries one by one; leave it out")
	}
	e.check("task", m.checkTask())
	if m.StartTimeout < 0 || m.StartTimeout > MaxTimeout {
		e.add("start_timeout", "%s: expected more than 0 and at most %s", m.StartTimeout, MaxTimeout)
	}
	if m.StreamIdle < 0 || m.StreamIdle > MaxTimeout {
		e.add("stream_idle", "%s: expected more than 0 and at most %s", m.StreamIdle, MaxTimeout)
	} else if m.StreamIdle > 0 && !m.Stream {
		e.add("stream_idle", "is only for models with stream: true")
	}
	e.check("busy_poll", CheckBusyPoll(m.BusyPoll))
	validateCalls(&e, m.Calls)
	checkNumber(&e, "cost", m.Cost, 0, MaxCost, "per evaluated query, 0 for none")
	if m.Device != "" {
		e.check("device", CheckName("device", m.Device))
	}
	m.Warmup.validate(&e)
	m.Validation.validate(&e)
	validatePath(&e, "dir", m.Dir)
	return e.err()
}

func (m *ModelSpec) validateImageDigest(e *FieldErrors) {
	switch {
	case m.ImageDigest == "":
	case m.Run.Image == "":
		e.add("image_digest", "is for a model that runs from an image, and run.image names none: leave it out")
	case len(m.ImageDigest) > maxImageBytes || !imageDigestForm.MatchString(m.ImageDigest):
		e.add("image_digest", "%.100q: expected sha256: with 64 digits 0-9a-f, or that behind a repository's name and @, as `docker image inspect` shows both; or leave it out: the gateway takes it", m.ImageDigest)
	}
}

// validateCalls checks names. Whether they exist is not known here: models may be declared in any order.
func validateCalls(e *FieldErrors, calls []string) {
	if len(calls) > MaxCalls {
		e.add("calls", "has %d names: expected at most %d", len(calls), MaxCalls)
		return
	}
	for i, name := range calls {
		at := fmt.Sprintf("calls[%d]", i)
		if e.check(at, CheckName("function or model", name)); slices.Contains(calls[:i], name) {
			e.add(at, "%q is there twice", name)
		}
	}
}

// validateTensors reports whether all specs are valid, so that sizes may be computed from them.
func validateTensors(e *FieldErrors, path string, specs []TensorSpec) bool {
	before := len(*e)
	if len(specs) == 0 {
		e.add(path, "is empty: a model has at least one")
	}
	if len(specs) > MaxTensors {
		e.add(path, "has %d tensors: expected at most %d", len(specs), MaxTensors)
		return false
	}
	var total int64
	seen := make(map[string]int, len(specs))
	for i, t := range specs {
		at := fmt.Sprintf("%s[%d]", path, i)
		if bad := checkTensorName(t.Name); bad != "" {
			e.add(at+".name", "%s", bad)
		} else if first, twice := seen[t.Name]; twice {
			e.add(at+".name", "%q is taken by %s[%d]: names of %s differ", t.Name, path, first, path)
		} else {
			seen[t.Name] = i
		}
		total += validateTensor(e, at, t)
		e.check(at+".media", t.checkMedia(path == "inputs"))
	}
	if len(*e) == before && total > MaxItemBytes {
		e.add(path, "take %d bytes a query together: expected at most %d", total, int64(MaxItemBytes))
	}
	return len(*e) == before
}

func checkTensorName(name string) string {
	switch {
	case name == "":
		return "is empty: every tensor has a name"
	case len(name) > MaxTensorNameBytes:
		return fmt.Sprintf("%.20q… has %d bytes: expected at most %d", name, len(name), MaxTensorNameBytes)
	case !plainText(name):
		return fmt.Sprintf("%q: expected UTF-8 text without control characters", name)
	}
	return ""
}

// validateTensor returns the bytes of one query's data if the size is fixed and valid, else 0.
func validateTensor(e *FieldErrors, at string, t TensorSpec) int64 {
	ok := true
	if !t.DType.Valid() {
		e.add(at+".dtype", "is missing or unknown: expected one of %s", dtypeNames())
		ok = false
	}
	if len(t.Shape) > MaxRank {
		e.add(at+".shape", "has %d dimensions: expected at most %d", len(t.Shape), MaxRank)
		return 0
	}
	for i, d := range t.Shape {
		switch {
		case d < -1:
			e.add(fmt.Sprintf("%s.shape[%d]", at, i), "%d is not a dimension: expected -1 (any) or 0 and more", d)
			ok = false
		case d > MaxItemBytes:
			e.add(fmt.Sprintf("%s.shape[%d]", at, i), "%d is too large: expected at most %d", d, int64(MaxItemBytes))
			ok = false
		}
	}
	if !ok || t.DType == Bytes {
		return 0
	}
	// The known dimensions must fit, with unknown ones counted as 1.
	n := int64(t.DType.Size())
	for _, d := range t.Shape {
		if d > 0 && n > math.MaxInt64/d {
			n = math.MaxInt64
			break
		}
		if d >= 0 {
			n *= d
		}
	}
	if n > MaxItemBytes {
		e.add(at+".shape", "%s takes more than %d bytes a query, the largest tensor there is", t, int64(MaxItemBytes))
		return 0
	}
	return int64(t.ItemBytes())
}

func (b *BatchingSpec) validate(e *FieldErrors) {
	switch b.Policy {
	case BatchAIMD, BatchQuantile:
	case BatchFixed:
		if b.Max == 0 {
			e.add("batching.max", "is missing: the policy %q needs the size of its batches", BatchFixed)
		}
	case BatchNone:
		if b.Max != 1 {
			e.add("batching.max", "%d: the policy %q has batches of 1", b.Max, BatchNone)
		}
	default:
		e.add("batching.policy", "%q: expected aimd, quantile, fixed or none", b.Policy)
	}
	if b.Max < 0 || b.Max > MaxBatch {
		e.add("batching.max", "%d: expected 1 to %d queries", b.Max, MaxBatch)
	}
	if b.MaxBytes < 1 || b.MaxBytes > MaxBatchBytes {
		e.add("batching.max_bytes", "%d: expected 1 to %d bytes", b.MaxBytes, int64(MaxBatchBytes))
	}
	if b.Hold < 0 || b.Hold > MaxHold {
		e.add("batching.hold", "%s: expected 0 to %s", b.Hold, MaxHold)
	}
	if b.Objective < 0 || b.Objective > MaxTimeout {
		e.add("batching.objective", "%s: expected 0 (two fifths of the smallest SLO) to %s", b.Objective, MaxTimeout)
	} else if b.Objective > 0 && b.Hold >= b.Objective {
		e.add("batching.hold", "%s is not less than batching.objective, %s: every batch would be late", b.Hold, b.Objective)
	}
	if b.Pad && b.Policy != BatchFixed {
		e.add("batching.pad", "is only for the policy %q: other batches have no size to be filled to", BatchFixed)
	}
}

func validatePath(e *FieldErrors, path, s string) {
	switch {
	case len(s) > MaxPathBytes:
		e.add(path, "has %d bytes: expected at most %d", len(s), MaxPathBytes)
	case !execText(s):
		e.add(path, "%q: expected UTF-8 text without NUL", s)
	}
}

// execText reports whether s can be an argument of a program: it has no NUL to end it early, and JSON and YAML can
// represent it.
func execText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

func plainText(s string) bool {
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return false
		}
	}
	return utf8.ValidString(s)
}

func envName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
