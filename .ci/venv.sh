#!/usr/bin/env bash
# venv.sh [DIRECTORY REQUIREMENTS…]: makes a Python environment with the pinned requirements and the worker binding built from this tree; by
# default build/venv, that of the demo and of the tests. Does nothing if both are up to date: two stamp files hold the checksums of their inputs.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${1:-build/venv}
requirements=(deploy/demo/requirements.txt .ci/requirements-test.txt gateway/cmd/xebec/apptest/requirements.txt)
(($# < 2)) || requirements=("${@:2}")
binding=worker/bindings/python

python=$(.ci/need.sh python)
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"; }
offline() {
	echo "error: pip could not install $1 (its message is above)." >&2
	echo "       It needs a package index: see PIP_INDEX_URL and PIP_FIND_LINKS in pip's manual for mirrors and local wheels." >&2
	exit 1
}

want=$({ "$python" -c 'import sys; print(sys.version, sys.base_prefix)'; cat "${requirements[@]}"; } | sha256sum)
if [[ ! -x $venv/bin/python || $(cat "$venv/requirements.sum" 2>/dev/null) != "$want" ]]; then
	echo "==> creating $venv with $("$python" --version) and what ${requirements[*]} name (a minute)"
	rm -rf "$venv"
	"$python" -m venv "$venv"
	pip install --quiet --only-binary numpy,scipy,scikit-learn "${requirements[@]/#/--requirement=}" || offline "the pinned requirements"
	echo "$want" >"$venv/requirements.sum"
fi

sources=$(find "$binding" \( -name build -o -name '*.egg-info' -o -name __pycache__ -o -name .pytest_cache -o -name tests \) -prune -o \
	-type f ! -name '*.so' -print0 | sort -z | xargs -0 sha256sum | sha256sum)
if [[ $(cat "$venv/binding.sum" 2>/dev/null) != "$sources" ]]; then
	echo "==> installing $binding into $venv"
	if ! .ci/need.sh cc 2>/dev/null; then
		echo "    no C compiler: the binding is installed without its extension and receives descriptors through the socket"
	fi
	# Install from a copy: setuptools leaves build folders beside the sources, and a stale one would be installed again.
	copy=$(mktemp -d)
	trap 'rm -rf "$copy"' EXIT
	cp -R "$binding" "$copy/binding"
	find "$copy" \( -name build -o -name '*.egg-info' -o -name '*.so' \) -prune -exec rm -rf {} +
	pip uninstall --quiet --yes xebec 2>/dev/null # what the distribution was called
	pip install --quiet --force-reinstall --no-deps --no-build-isolation "$copy/binding" || offline "the worker binding"
	echo "$sources" >"$venv/binding.sum"
fi
