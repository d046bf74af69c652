#!/usr/bin/env bash
# test.sh [STAGE…]: sets up what the tests need and runs them in stages, by default all stages. A failed stage does not stop the
# later ones. The output ends with a summary.
set -uo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
stages=() results=() failed=0

stage() { # stage NAME FUNCTION
	if [[ ${#only[@]} -gt 0 && " ${only[*]} " != *" $1 "* ]]; then return; fi
	local began=$SECONDS verdict=ok
	echo "==> test: $1"
	"$2" </dev/null || { verdict=FAILED; failed=1; }
	stages+=("$1")
	results+=("$verdict, $((SECONDS - began)) s")
	[[ $verdict == ok ]] || echo "==> test: $1 FAILED"
}
only=("$@")

# prepare makes what several stages need. If a step fails, the stages that need its output fail too. The steps are joined by &&
# because bash ignores `set -e` where a stage is called.
prepare() {
	.ci/need.sh cc && redis_server && .ci/build.sh test && .ci/venv.sh && deploy/demo/train.sh
}

# The Go tests start their own Redis servers.
redis_server() {
	if ! command -v redis-server >/dev/null && command -v apt-get >/dev/null && [[ $(id -u) == 0 ]]; then
		echo '--- apt-get install redis-server'
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends redis-server >/dev/null
	fi
	.ci/need.sh redis
}

# docker_engine starts a Docker engine for the tests, or uses the one that XEBEC_TEST_DOCKER names, and builds the ready-made images on
# it. If no engine can be started, the summary says what was not tested.
engine='' untested=''
docker_engine() {
	if [[ -z ${XEBEC_TEST_DOCKER:-} ]]; then
		.ci/need.sh docker || { no_docker 'no dockerd, docker or debootstrap'; return 0; }
		engine=$(mktemp -d /tmp/xdk.XXXXXX)
		XEBEC_TEST_DOCKER=$(.ci/docker.sh start "$engine") || { no_docker 'dockerd does not run here'; return 0; }
		export XEBEC_TEST_DOCKER
	elif [[ $XEBEC_TEST_DOCKER == none ]]; then
		no_docker 'XEBEC_TEST_DOCKER=none'
		return 0
	fi
	images || { echo '==> building the images again: a package mirror may have failed' >&2; images; } || return 1
	export XEBEC_TEST_IMAGES=test
}
images() { DOCKER_HOST=$XEBEC_TEST_DOCKER containers/images/build.sh --base debootstrap --tag test; }
no_docker() {
	export XEBEC_TEST_DOCKER=none
	untested="replicas in containers were NOT TESTED: no Docker engine ($1)"
	echo "==> $untested" >&2
}
stop_engine() { [[ -z $engine ]] || .ci/docker.sh stop "$engine"; }
trap stop_engine EXIT

# The import rules run first: they take a second, and a broken rule often explains later failures.
architecture() { "$go" test -count=1 . ; }

# Every package under the race detector. The variables name the programs and the Python environment that prepare made.
export XEBEC_BIN=$PWD/bin/xebec XEBEC_TEST_PYTHON=$PWD/build/venv/bin/python XEBEC_TEST_WORKER=$PWD/bin/xebec-testworker
go_race() {
	local packages
	mapfile -t packages < <("$go" list ./... | grep -v '/gateway/forecast$')
	"$go" test -race -timeout 25m "${packages[@]}"
}

# Simulations take 15 times as long under the race detector, which has something to find only where several run at once.
forecasts() { "$go" test ./gateway/forecast && "$go" test -race -run 'SameAnswer|NoAnswer' ./gateway/forecast; }

# The race detector allocates, so tests that count allocations run in a pass of their own. They have Alloc in their names, and those
# that would fail under the detector are in files with `//go:build !race`. The pass fails if it runs no test.
allocations() {
	local log status
	log=$(mktemp)
	"$go" test -count=1 -run Alloc -v ./... >"$log" 2>&1
	status=$?
	grep -E '^(--- |FAIL|panic|#)|\.go:[0-9]+:' "$log" || true
	if ((status == 0)) && ! grep -q '^--- PASS: .*Alloc' "$log"; then
		echo "error: no test with Alloc in its name ran" >&2
		status=1
	fi
	rm -f "$log"
	return $status
}

# The tests run every case on both engines of the binding: the C extension's ring, and frames on the socket.
python_binding() { (cd worker/bindings/python && ../../../build/venv/bin/python -m pytest -q); }

# Both ports of a gateway answer as api/spec/openapi.yaml says.
described() { .ci/schemathesis.sh; }

# The libraries with which apps call a gateway. `make test-clients` also runs perf_analyzer.
clients() { .ci/clients.sh python typescript protocols; }

demo_models() { build/venv/bin/python -m pytest -q deploy/demo/tests; }

# The parts of the benchmarks' trainers that need no data. Without jax and onnx, tests of networks are skipped.
trainers() { build/venv/bin/python -m pytest -q -p no:cacheprovider bench/models/learning; }

# The doorbell as a Promela model, checked exhaustively for lost wake-ups.
doorbell() {
	if ! command -v spin >/dev/null && command -v apt-get >/dev/null && [[ $(id -u) == 0 ]]; then
		echo '--- apt-get install spin'
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends spin >/dev/null
	fi
	.ci/need.sh spin && .ci/need.sh cc && shm/model.sh
}

# A minute of everything at once. It needs the machine for itself: under the race detector's load clients give up too early.
soak() { "$go" run ./bench/cmd/soak -duration 60s -lives 3 -redis redis-server -out ''; }

all=(prepare architecture docker go-race forecasts allocations described python-binding clients demo trainers doorbell-model soak)
for name in "${only[@]}"; do
	if [[ " ${all[*]} " != *" $name "* ]]; then
		echo "error: there is no stage '$name'; expected one of: ${all[*]}" >&2
		exit 2
	fi
done

stage prepare prepare
stage architecture architecture
stage docker docker_engine
stage go-race go_race
stage forecasts forecasts
stage allocations allocations
stage described described
stage python-binding python_binding
stage clients clients
stage demo demo_models
stage trainers trainers
stage doorbell-model doorbell
stage soak soak

echo
echo 'Summary'
for i in "${!stages[@]}"; do
	printf '  %-16s %s\n' "${stages[i]}" "${results[i]}"
done
if [[ -n $untested ]]; then printf '\n  !!!  %s  !!!\n\n' "$untested"; fi
if ((failed)); then echo 'make test: FAILED'; else echo 'make test: ok'; fi
exit $failed
