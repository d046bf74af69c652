#!/usr/bin/env bash
# clients.sh [--report FILE] [--page FILE] [SET…]: tests the libraries with which apps call a gateway (bin/xebec); by default all sets. The sets python and
# typescript are our clients, with the functions of api/clients/testdata; the Go client is tested by `go test`. The set protocols is the clients of
# other servers, with the models of api/clients/protocols, and perf_analyzer measures them with NVIDIA's program: --report writes what these two sets
# could do to FILE, and --page the guide's page.
set -uo pipefail
cd "$(dirname "$0")/.."

venv=build/clients protocols=build/protocols
results=$(mktemp)

# environment [VENV REQUIREMENTS [ALONE]] makes the Python environment of a set, by default that of our clients. The packages of ALONE are installed
# one after the other, without their dependencies.
environment() {
	local venv=${1:-$venv} requirements=${2:-.ci/requirements-clients.txt} alone=${3:-} python want package
	python=$(.ci/need.sh python) || return 1
	want=$({ "$python" -c 'import sys; print(sys.version, sys.base_prefix)'; cat "$requirements" $alone; } | sha256sum)
	[[ ! -x $venv/bin/python || $(cat "$venv/requirements.sum" 2>/dev/null) != "$want" ]] || return 0
	echo "==> creating $venv with what $requirements names"
	rm -rf "$venv"
	"$python" -m venv "$venv" || return 1
	"$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --requirement "$requirements" || {
		echo "error: pip could not install what $requirements names (its message is above)." >&2
		echo "       It needs a package index: see PIP_INDEX_URL and PIP_FIND_LINKS in pip's manual for mirrors and local wheels." >&2
		return 1
	}
	[[ -z $alone ]] || grep -v '^#' "$alone" | while read -r package; do
		"$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --no-deps "$package" || return 1
	done || return 1
	echo "$want" >"$venv/requirements.sum"
}

dir='' gateway=''
stop() {
	[[ -z $gateway ]] || { kill "$gateway" 2>/dev/null && wait "$gateway" 2>/dev/null; } || true
	[[ -z $dir ]] || rm -rf "$dir"
	dir='' gateway=''
}
trap 'stop; rm -f "$results"' EXIT

# serve CONFIG [FLAG…] starts a gateway and exports its addresses as XEBEC_SERVER, XEBEC_GRPC and XEBEC_ADMIN.
serve() {
	stop
	dir=$(mktemp -d)
	: >"$dir/log"
	PATH=$PWD/bin:$PATH bin/xebec serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 --grpc-listen 127.0.0.1:0 --data-dir none --config "$@" 2>"$dir/log" &
	gateway=$!
	for ((i = 0; i < 600; i++)); do # the gateway writes its addresses when it serves
		XEBEC_SERVER=$(grep -oE '"functions": "[^"]+"' "$dir/log" | cut -d'"' -f4)
		XEBEC_GRPC=$(grep -oE '"grpc": "[^"]+"' "$dir/log" | cut -d'"' -f4)
		XEBEC_ADMIN=$(grep -oE '"admin": "[^"]+"' "$dir/log" | cut -d'"' -f4)
		export XEBEC_SERVER XEBEC_GRPC XEBEC_ADMIN
		[[ -n $XEBEC_SERVER ]] && "$venv/bin/python" -c "import urllib.request as u; u.urlopen('http://$XEBEC_SERVER/readyz')" 2>/dev/null && return 0
		kill -0 "$gateway" 2>/dev/null || break
		sleep 0.1
	done
	echo "error: the gateway does not serve; the end of its log:" >&2
	tail -5 "$dir/log" >&2
	return 1
}

# The binding is not needed, and is not there: the client stands alone.
python_client() {
	(cd api/clients/python && "../../../$venv/bin/python" -m mypy && "../../../$venv/bin/python" -m pytest -q -p no:cacheprovider)
}

# The packages of npm are pinned by package-lock.json, and installed again when that changes.
typescript_client() (
	.ci/need.sh node && cd api/clients/typescript || exit 1
	want=$({ node --version; cat package.json package-lock.json; } | sha256sum)
	if [[ $(cat node_modules/installed.sum 2>/dev/null) != "$want" ]]; then
		npm ci --silent --no-audit --no-fund || {
			echo "error: npm could not install what package-lock.json names (its message is above)." >&2
			echo "       It needs a registry: see npm's manual for the configuration 'registry'." >&2
			exit 1
		}
		echo "$want" >node_modules/installed.sum
	fi
	rm -rf dist && npm test --silent
)

models() { serve "api/clients/protocols/$1" --python "$PWD/build/venv/bin/python" "${@:2}"; }

# Each file is a process of its own: Triton's and KServe's packages describe the same messages, which one process cannot do.
protocols_client() {
	local failed=0 file
	for file in api/clients/protocols/test_*.py; do
		[[ $file != */test_control.py && $file != */test_perf_analyzer.py ]] || continue
		run_file "$file" || failed=1
	done
	kill -0 "$gateway" || failed=1
	control || failed=1
	return $failed
}
run_file() { "$protocols/bin/python" -m pytest -q -p no:cacheprovider --results "$results" "$1"; }

# A gateway whose models clients load and unload.
control() {
	XEBEC_TOKEN=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
	export XEBEC_TOKEN
	tokens=$(umask 077 && mktemp) && echo "clients:$XEBEC_TOKEN" >"$tokens"
	models control --model-control --admin-token-file "$tokens" && run_file api/clients/protocols/test_control.py
	local status=$?
	rm -f "$tokens"
	return $status
}

# perf_analyzer is NVIDIA's program, which .ci/perf-analyzer.sh installs.
perf_analyzer_client() {
	XEBEC_PERF_ANALYZER=$PWD/build/perf-analyzer/perf_analyzer run_file api/clients/protocols/test_perf_analyzer.py
}

all=(python typescript protocols perf_analyzer) sets=() reports=()
while (($# > 0)); do
	case $1 in
	--report | --page)
		[[ $# -gt 1 ]] || { echo "error: $1: expected a file" >&2; exit 2; }
		reports+=("$1" "$2")
		shift
		;;
	*)
		if [[ " ${all[*]} " != *" $1 "* ]]; then
			echo "error: there is no set '$1'; expected one of: ${all[*]}" >&2
			exit 2
		fi
		sets+=("$1")
		;;
	esac
	shift
done
((${#sets[@]} > 0)) || sets=("${all[@]}")

failed=0
for name in "${sets[@]}"; do
	echo "==> clients: $name"
	case $name in
	protocols | perf_analyzer) # the models need the binding, which is not there for their clients
		environment "$protocols" .ci/requirements-protocols.txt .ci/requirements-protocols-alone.txt && environment && .ci/need.sh node &&
			.ci/need.sh curl && .ci/venv.sh && { [[ $name != perf_analyzer ]] || .ci/perf-analyzer.sh; } && models models || exit 1
		;;
	*) environment && serve api/clients/testdata || exit 1 ;;
	esac
	"${name}_client" || failed=1
	kill -0 "$gateway" 2>/dev/null || { echo 'error: the gateway has ended' >&2; failed=1; }
	stop
done
[[ ! -s $results ]] || "$protocols/bin/python" api/clients/protocols/report.py "$results" "${reports[@]}" || failed=1
exit $failed
