"""Prints the digits held out from the training of the demo's models, as JSON: heldout.py DEMO_FOLDER"""

import json
import sys

sys.path.insert(0, sys.argv[1])
import train  # noqa: E402  (found through the line above)

_, pixels, _, labels = train.split()
json.dump({"pixels": pixels.tolist(), "labels": labels.tolist()}, sys.stdout)
