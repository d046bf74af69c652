#!/usr/bin/env bash
# schemathesis.sh: starts a gateway (bin/xebec) with a model that echoes, and lets schemathesis send both of its ports what
# api/spec/openapi.yaml permits and what it forbids: some 1,400 requests, the same ones each time. Fails if an answer is not as described.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=build/schemathesis
requirements=.ci/requirements-schemathesis.txt

python=$(.ci/need.sh python)
want=$({ "$python" -c 'import sys; print(sys.version, sys.base_prefix)'; cat "$requirements"; } | sha256sum)
if [[ ! -x $venv/bin/schemathesis || $(cat "$venv/requirements.sum" 2>/dev/null) != "$want" ]]; then
	echo "==> creating $venv with pinned schemathesis"
	rm -rf "$venv"
	"$python" -m venv "$venv"
	"$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --requirement "$requirements" || {
		echo "error: pip could not install schemathesis (its message is above)." >&2
		echo "       It needs a package index: see PIP_INDEX_URL and PIP_FIND_LINKS in pip's manual for mirrors and local wheels." >&2
		exit 1
	}
	echo "$want" >"$venv/requirements.sum"
fi

dir=$(mktemp -d)
gateway=
stop() {
	[[ -z $gateway ]] || { kill "$gateway" 2>/dev/null && wait "$gateway" 2>/dev/null; } || true
	rm -rf "$dir"
}
trap stop EXIT

cat >"$dir/noop.yaml" <<YAML
kind: Model
name: noop
inputs: [{name: input, dtype: float32, shape: [4]}]
outputs: [{name: output, dtype: float32, shape: [4]}]
run: {command: ["$PWD/bin/xebec-testworker", -mode, echo]}
---
kind: Function
name: noop
models: [noop]
slo: 5s
YAML
bin/xebec serve --listen 127.0.0.1:0 --admin 127.0.0.1:0 --data-dir none --config "$dir/noop.yaml" 2>"$dir/log" &
gateway=$!

fail() {
	echo "error: $1; the end of the gateway's log:" >&2
	tail -5 "$dir/log" >&2
	exit 1
}
functions='' admin=''
for ((i = 0; i < 300; i++)); do # the gateway writes its addresses when it serves
	if [[ -z $functions ]] && line=$(grep -oE '"functions": "[^"]+", "admin": "[^"]+"' "$dir/log"); then
		IFS='"' read -r _ _ _ functions _ _ _ admin _ <<<"$line"
	fi
	[[ -n $functions ]] && "$venv/bin/python" -c "import urllib.request as u; u.urlopen('http://$functions/readyz')" 2>/dev/null && break
	kill -0 "$gateway" 2>/dev/null || fail 'the gateway has ended'
	sleep 0.1
done
[[ -n $functions ]] || fail 'the gateway does not serve after 30 s'

failed=0
port() { # port NAME ADDRESS FILTER…
	local name=$1 address=$2 status=0
	timeout 120 "$venv/bin/schemathesis" --config-file .ci/schemathesis.toml --no-color run "http://$address/openapi.yaml" --url "http://$address" \
		"${@:3}" >"$dir/$name" 2>&1 || status=$?
	# An operation that it skips is one that its worker died of.
	if ((status != 0)) || grep -q 'Skipped:' "$dir/$name" || ! grep -q 'generated, .* passed' "$dir/$name"; then
		cut -c1-300 "$dir/$name"
		failed=1
	fi
	echo "the $name port: $(grep -E 'generated, ' "$dir/$name" || echo 'no summary')"
}
port function "$functions" --include-tag functions --include-tag inference --include-tag health --exclude-path /metrics
port admin "$admin" --include-tag admin --include-tag health
kill -0 "$gateway" 2>/dev/null || fail 'the gateway has ended'
if grep -nE '^(WARNING: DATA RACE|panic: |fatal error: )' "$dir/log"; then fail 'the gateway is defective'; fi
exit $failed
