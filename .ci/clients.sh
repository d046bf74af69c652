#!/usr/bin/env bash
# clients.sh [SET…]: tests the libraries with which apps call a gateway (bin/xebec) against one with the functions of api/clients/testdata; by
# default all sets. The Go client is tested by `go test`.
set -uo pipefail
cd "$(dirname "$0")/.."

venv=build/clients

# environment makes the Python environment of all sets.
environment() {
	local python requirements=.ci/requirements-clients.txt want
	python=$(.ci/need.sh python) || return 1
	want=$({ "$python" -c 'import sys; print(sys.version, sys.base_prefix)'; cat "$requirements"; } | sha256sum)
	[[ ! -x $venv/bin/python || $(cat "$venv/requirements.sum" 2>/dev/null) != "$want" ]] || return 0
	echo "==> creating $venv with what $requirements names"
	rm -rf "$venv"
	"$python" -m venv "$venv" || return 1
	"$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --requirement "$requirements" || {
		echo "error: pip could not install what $requirements names (its message is above)." >&2
		echo "       It needs a package index: see PIP_INDEX_URL and PIP_FIND_LINKS in pip's manual for mirrors and local wheels." >&2
		return 1
	}
	echo "$want" >"$venv/requirements.sum"
}

dir='' gateway=''
stop() {
	[[ -z $gateway ]] || { kill "$gateway" 2>/dev/null && wait "$gateway" 2>/dev/null; } || true
	[[ -z $dir ]] || rm -rf "$dir"
}
trap stop EXIT

# serve starts the gateway and exports its address as XEBEC_SERVER.
serve() {
	dir=$(mktemp -d)
	PATH=$PWD/bin:$PATH bin/xebec serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 --data-dir none --config api/clients/testdata 2>"$dir/log" &
	gateway=$!
	for ((i = 0; i < 600; i++)); do # the gateway writes its addresses when it serves
		XEBEC_SERVER=$(grep -oE '"functions": "[^"]+"' "$dir/log" | cut -d'"' -f4)
		export XEBEC_SERVER
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

all=(python typescript)
sets=("${@:-${all[@]}}")
for name in "${sets[@]}"; do
	if [[ " ${all[*]} " != *" $name "* ]]; then
		echo "error: there is no set '$name'; expected one of: ${all[*]}" >&2
		exit 2
	fi
done

environment && serve || exit 1
failed=0
for name in "${sets[@]}"; do
	echo "==> clients: $name"
	"${name}_client" || failed=1
done
kill -0 "$gateway" 2>/dev/null || { echo 'error: the gateway has ended' >&2; failed=1; }
exit $failed
