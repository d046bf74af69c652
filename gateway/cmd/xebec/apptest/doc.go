// Package apptest holds the whole-program tests of xebec. They build the real programs once, run `xebec serve` with real
// workers as processes, and use it only as its users do: over HTTP and through the command line.
//
// # What they promise
//
// To operators: each failure and each kind of bad input that one gateway can meet has a test that causes it. Workers are
// killed, hang, raise exceptions, return nonsense and send garbage. Request bodies are too large, malformed or smuggled.
// The gateway is killed with SIGKILL under load, and asked to end while it works. Members of ensembles stop. The Redis
// server that keeps learned state is killed, stopped and started again.
//
// To authors of models: the demo classifies held-out digits correctly in every dialect, also for the public client of the
// Open Inference Protocol. Confidence and accuracy that a model reports, and feedback for it, arrive. Models run in
// containers as they do in processes, and survive the loss of their image, their memory, their engine and their gateway.
//
// To authors of apps: functions improve by feedback, for each user apart. Versions are rolled out, validated, split,
// shadowed, compared and rolled back under load without a failed query. Declarations survive SIGKILL, a full disk, a
// damaged file, and a Redis that was killed, emptied or replaced by an older replica. Two gateways that share a Redis
// agree. Stores written by earlier programs (testdata/stores) are opened without loss.
//
// To operators of large nodes: models sleep, wake, and have as many replicas as their queries need. Resource limits hold.
// Models that cannot start, crash, use too much memory, fork without end or do not exit do not affect their neighbours.
// Zygotes, the reaper and the gateway are killed while models wake.
//
// After each test the gateway must end with status 0 on SIGTERM, must have reported no data race, and must leave no
// process behind. Every process of a gateway has the test's own TMPDIR in its environment, by which the harness finds it.
//
// # What they never do
//
// They import nothing of the program except package api and the Redis server for tests (redistest). They do not reach
// into processes, assert no timing and never sleep: a test waits for a condition, which is polled until patience is over.
//
// # What they need
//
// They need redis-server and the Python environment of `make demo`: build/venv, or the interpreter that XEBEC_TEST_PYTHON
// names, with the worker binding, scikit-learn, the trained models and the requirements in requirements.txt. Models in
// containers need the Docker engine that XEBEC_TEST_DOCKER names, or dockerd and root to start one. With
// XEBEC_TEST_DOCKER=none these tests are skipped, and .ci/test.sh says so. Tests that kill an engine always use one of
// their own. Under `go test -race` the gateway is built with the race detector too.
// XEBEC_TEST_GATEWAY names another build of the gateway to test.
//
// # Where to read next
//
// harness_test.go builds and runs the programs, client_test.go sends requests, observe_test.go reads metrics and status
// as operators do. answers_test.go compares over a thousand answers of both ports with recordings;
// testdata/answers/README.md says how to record them again. The other files are named after what they cause.
package apptest
