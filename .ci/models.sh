#!/usr/bin/env bash
# models.sh [--torch] [PYTEST ARGUMENTS…]: installs the libraries that worker/libraries names into build/models (about 1.5 GB), builds
# bin/xebec, and runs the tests of models that use them. With --torch it installs PyTorch and Transformers too, into build/models-torch
# (about 8 GB), and tests their files as well.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=build/models requirements=(worker/libraries/requirements.txt)
if [[ ${1:-} == --torch ]]; then
	shift
	venv=build/models-torch requirements+=(worker/libraries/requirements-torch.txt)
fi
.ci/venv.sh "$venv" "${requirements[@]}" .ci/requirements-test.txt
.ci/build.sh test
cd worker/libraries
exec "../../$venv/bin/python" -m pytest -q -p no:cacheprovider "$@"
