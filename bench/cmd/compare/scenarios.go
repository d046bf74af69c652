package main

import "github.com/xebec-serving/xebec/bench/loadgen"

type workerKind string

const (
	compiled workerKind = "compiled"
	python   workerKind = "Python"
)

// A scenario is one kind of request at one concurrency. The targets are those of the project. 0 means that the scenario has no target and is
// only shown.
type scenario struct {
	name        string
	setting     setting
	connections int
	ask         question
	maxCPURatio float64
	maxP50Ratio float64
	maxMemRatio float64
}

// A setting is how the servers are started. If apart is set, the generator has the first core for itself, and server and worker have the
// others, as with clients on another machine. Otherwise the kernel decides.
type setting struct {
	worker workerKind
	apart  bool
}

func (s setting) String() string {
	if s.apart {
		return string(s.worker) + " no-op worker, apart from the generator"
	}
	return string(s.worker) + " no-op worker"
}

var (
	shared       = setting{compiled, false}
	apart        = setting{compiled, true}
	sharedPython = setting{python, false}
	apartPython  = setting{python, true}
	settings     = []setting{shared, apart, sharedPython, apartPython}
)

// smallJSON has 40 bytes.
var smallJSON = []byte(`{"input": [0.5, 1.25, -3.75, 100, 7.50]}`)

var (
	small   = native(loadgen.JSON, smallJSON)
	digit   = native(loadgen.Binary, make([]byte, 3<<10))   // about the 784 pixels of an MNIST digit, as float32
	picture = native(loadgen.Binary, make([]byte, 600<<10)) // a 224 × 224 picture in colour
)

// The model ignores the values. The scenarios called OIP and TF are the function in the other protocols.
var scenarios = []scenario{
	{"40 B JSON, 64", shared, 64, small, 1.15, 0, 0},
	{"3 KiB binary, 64", shared, 64, digit, 1.15, 0, 0},
	{"600 KiB binary, 16", shared, 16, picture, 1.15, 0, 0},
	{"600 KiB binary, 256", shared, 256, picture, 0, 0, 1.5},
	{"768 numbers of JSON, 64", shared, 64, nativeJSON(768), 0, 0, 0},
	{"OIP JSON, 10 numbers, 64", shared, 64, oipJSON(10), 2, 0, 0},
	{"OIP JSON, 768 numbers, 64", shared, 64, oipJSON(768), 2, 0, 0},
	{"OIP binary, 3 KiB, 64", shared, 64, oipBinary(768), 1.4, 0, 0},
	{"TF JSON, 10 numbers, 64", shared, 64, tfJSON(10), 2, 0, 0},
	{"TF JSON, 768 numbers, 64", shared, 64, tfJSON(768), 2, 0, 0},
	{"40 B JSON, 1", shared, 1, small, 1.3, 1.4, 0},
	{"40 B JSON, 4", shared, 4, small, 0, 0, 0},
	{"40 B JSON, 16", shared, 16, small, 0, 0, 0},
	{"40 B JSON, 256", shared, 256, small, 0, 0, 0},
	{"40 B JSON, 4096", shared, 4096, small, 0, 0, 0},
	{"40 B JSON, 1, apart", apart, 1, small, 1.3, 1.4, 0},
	{"40 B JSON, 64, Python", sharedPython, 64, small, 0, 0, 0},
	{"40 B JSON, 1, Python", sharedPython, 1, small, 0, 1.8, 0},
	{"40 B JSON, 1, Python, apart", apartPython, 1, small, 0, 1.8, 0},
}
