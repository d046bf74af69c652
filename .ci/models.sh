#!/usr/bin/env bash
# models.sh: installs the libraries that worker/libraries names into build/models (about 1.5 GB), builds bin/xebec, and runs the tests of
# models that use them. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

.ci/venv.sh build/models worker/libraries/requirements.txt .ci/requirements-test.txt
.ci/build.sh test
cd worker/libraries
exec ../../build/models/bin/python -m pytest -q -p no:cacheprovider "$@"
