// Package apptest holds the whole-program tests of xebec: they build the real programs once, run `xebec serve` with real
// workers as processes, and speak to it only as its users do, over HTTP and through the command line.
//
// # What they promise
//
// To operators: every row of the design's table of bad input and bad luck that one gateway can meet has a test here that
// causes it. Workers are killed, hang, raise, return nonsense and speak garbage; bodies are too large, malformed and
// smuggled; the gateway is killed with SIGKILL under load, and told to end while it works; members of ensembles stop, and the
// Redis server that keeps what was learned is killed, stopped and started again. To authors of models: the demo
// answers held-out digits rightly in every dialect, the Open Inference Protocol through its own public client included; what
// a model says of its confidence and its accuracy, and what it is taught, arrives. To authors of apps: functions get better by
// feedback, for each user apart. Versions roll out, are validated, split, shadowed, learned about and rolled back under load without
// a failed query; what was declared is there after SIGKILL, a full disk, a damaged file, a Redis that was killed, emptied or
// replaced by an older replica; two gateways that share one agree. Stores that earlier programs have written (testdata/stores) are
// opened without loss. Models run in containers as they do in processes, through the loss of their
// image, their memory, their engine and their gateway.
//
// To operators again: models sleep, wake, and have as many replicas as their queries need; what they may take at most holds; those that cannot
// start, crash, eat, fork or stay are told apart from their neighbours, who notice nothing. Zygotes, the reaper and the gateway are killed
// while models wake.
//
// After each test the gateway must end with status 0 on SIGTERM, must have reported no data race, and must leave no process
// behind: every process of a gateway carries the test's own TMPDIR in its environment, and is found by that.
//
// # What they never do
//
// They import nothing of the program but its nouns (package api) and the Redis server for tests (redistest), reach into no
// process, judge no time and sleep for nothing: whatever is waited for is a condition, polled until the patience of the test is over.
//
// # What they need
//
// The Python environment of `make demo`: build/venv, or the interpreter that XEBEC_TEST_PYTHON names, with the worker binding,
// scikit-learn, the trained models, and what requirements.txt here lists; and redis-server. For models in containers the Docker engine that
// XEBEC_TEST_DOCKER names, else dockerd and root to start one; where there is none (XEBEC_TEST_DOCKER=none) these tests are skipped, which
// .ci/test.sh says. Engines that are killed are always the tests' own. Under `go test -race` the gateway too
// is built with the race detector. XEBEC_TEST_GATEWAY names another build of the gateway to test.
//
// # Where to read next
//
// harness_test.go builds and runs the programs, client_test.go asks them, observe_test.go looks at them as operators do. answers_test.go compares
// over a thousand answers of both ports with recordings: testdata/answers/README.md says how to record them again. The other files are named
// after what they cause.
package apptest
