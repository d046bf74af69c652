#!/usr/bin/env bash
# pythons.sh [PYTEST ARGUMENTS…]: runs the tests of the Python binding with each supported Python and numpy that this machine can run, in
# an environment of its own below build/pythons. PYTHONS="3.12 3.13" chooses among them. A Python that is missing is named in the summary;
# it fails the run only if PYTHONS asks for it.
set -uo pipefail
cd "$(dirname "$0")/.."

# The newest numpy of each generation that has wheels for that Python: numpy 1.26 ends with Python 3.12.
combinations=('3.11 1.26.4' '3.11 2.4.6' '3.12 1.26.4' '3.12 2.4.6' '3.13 2.4.6')
asked=${PYTHONS:-}
lines=() failed=0 ran=0

# interpreter VERSION prints the path of that Python: of the PATH, else the newest one of pyenv.
interpreter() {
	local candidate
	while read -r candidate; do
		if [[ $("$candidate" -c 'import sys, venv, ensurepip; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) == "$1" ]]; then
			"$candidate" -c 'import sys; print(sys.executable)'
			return
		fi
	done < <(type -ap "python$1"; ls -d "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python3 2>/dev/null | sort -rV)
	return 1
}

for combination in "${combinations[@]}"; do
	read -r version numpy <<<"$combination"
	if [[ -n $asked && " $asked " != *" $version "* ]]; then continue; fi
	name="Python $version, numpy $numpy"
	if ! python=$(interpreter "$version"); then
		lines+=("$name: NOT TESTED: there is no python$version with venv on the PATH and none of pyenv (pyenv install $version)")
		[[ -z $asked ]] || failed=1
		continue
	fi
	echo "==> $name ($python)"
	venv=build/pythons/$version-numpy-${numpy%%.*}
	requirements=$(mktemp)
	# The tests' requirements but for numpy, of which the demo's pinned one is one of two here.
	{ echo "numpy==$numpy"; grep -E '^ml_dtypes==' gateway/cmd/xebec/apptest/requirements.txt; cat .ci/requirements-test.txt; } >"$requirements"
	if [[ $numpy == 1.* ]]; then # pandas 3 needs numpy 2
		sed -i 's/^pandas==.*/pandas==2.3.3\npytz==2026.6/' "$requirements"
	fi
	began=$SECONDS verdict=ok
	if PYTHON=$python .ci/venv.sh "$venv" "$requirements" </dev/null; then
		tests=$PWD/worker/bindings/python
		# From the root directory, so that the package is what was installed.
		(cd "$tests" && "$OLDPWD/$venv/bin/python" -m pytest -q -p no:cacheprovider "$@") </dev/null || { verdict=FAILED; failed=1; }
	else
		verdict='FAILED: its environment could not be made' failed=1
	fi
	rm -f "$requirements"
	ran=1
	lines+=("$name: $verdict, $((SECONDS - began)) s")
done

echo
echo 'Summary'
printf '  %s\n' "${lines[@]}"
if ((!ran)); then echo "error: no Python was tested${asked:+ (PYTHONS=$asked)}" >&2; failed=1; fi
exit $failed
