#!/usr/bin/env bash
# train.sh: trains the demo's models in the environment build/venv, unless they exist and are newer than train.py and the
# pinned libraries. A model file works only with the version of scikit-learn that wrote it.
set -euo pipefail
cd "$(dirname "$0")"

for made in models/{digits-svm,digits-forest,digits-logreg}/digits.joblib models/digit.json; do
	if [[ ! -e $made || $made -ot train.py || $made -ot requirements.txt ]]; then
		echo '==> training the demo models on handwritten digits'
		exec ../../build/venv/bin/python train.py
	fi
done
