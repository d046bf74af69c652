#!/usr/bin/env bash
# run.sh [FLAGS of compare…]: runs all measurements, one after the other; results go to bench/results. METHOD.md says what they mean.
# BENCHTIME is the duration of each Go benchmark (default 500ms).
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}

for program in loadgen floor compare grpc ring figures sim overload learning cache lifecycle capacity step core; do
	echo "==> building bin/$program"
	CGO_ENABLED=0 "$go" build -trimpath -o "bin/$program" "./bench/cmd/$program"
done

load=$(cut -d' ' -f1 /proc/loadavg)
echo "==> load of the machine: $load (stop other programs: ratios are robust against other work, but not fully)"

echo '==> the whole path against bare Hertz'
bin/compare "$@"

echo '==> gRPC against bare grpc-go'
bin/grpc

echo '==> the ring against a unix stream socket'
bin/ring

echo "==> the paper's figures 3, 4 and 5 on scikit-learn containers"
bin/figures

echo '==> scheduling policies compared in simulation'
bin/sim -compare -out bench/results -date "$(date +%F)"
bin/sim -delay -seeds 3 -out bench/results -date "$(date +%F)"

echo '==> a gateway under overload'
bin/overload

echo "==> the paper's figures 7 to 10: learning from feedback"
bin/learning

echo '==> the prediction cache compared with another cache'
bin/cache

echo '==> the life cycle: roll-outs under load, many models, the inference log'
bin/lifecycle

echo '==> capacity: cold starts, models that sleep, a step in the load'
bin/capacity ${DOCKER_HOST:+-docker "$DOCKER_HOST"}

echo '==> batches of steps against batches of whole requests'
bin/step

echo '==> the core in one process'
bin/core

echo '==> benchmarks of the packages'
results=bench/results/$(date +%F)-packages.txt
status=0
"$go" test -run '^$' -bench . -benchmem -benchtime "${BENCHTIME:-500ms}" ./... | grep -v 'no test files' | grep -Ev '^(ok|PASS|\?)' | tee "$results" || status=$?
echo "==> written: $results"
if ((status)); then echo 'error: a benchmark failed; see above' >&2; fi
exit $status
