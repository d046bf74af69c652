"""Prints commands to try against a running demo: try.py URL [PID]

Waits for URL/readyz first. With PID it stops waiting, silently, when that process ends. Uses only the standard library.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

DIGIT = Path(__file__).parent / "models" / "digit.json"
# Starting five Python workers takes seconds. After this long something is wrong, and the gateway's log says what.
WAIT_SECONDS = 120
POLL_SECONDS = 0.2
SHADES = " .:+#"


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def wait_until_ready(url, pid):
    """Returns True once /readyz answers 200, and False when the process has ended or the time is up. In the latter case it
    prints the last answer of /readyz."""
    give_up = time.monotonic() + WAIT_SECONDS
    said = "no answer"
    while time.monotonic() < give_up:
        if pid and not alive(pid):
            return False
        try:
            with urllib.request.urlopen(url + "/readyz", timeout=2):
                return True
        except urllib.error.HTTPError as e:
            said = e.read().decode("utf-8", "replace").strip() or f"status {e.code}"
        except OSError as e:
            said = str(e)
        time.sleep(POLL_SECONDS)
    print(f"==> still not ready after {WAIT_SECONDS} s. {url}/readyz says: {said}", file=sys.stderr)
    return False


def picture(pixels):
    """Returns the digit as eight lines of text. Pixels are grey values from 0 to 16."""
    rows = (pixels[i : i + 8] for i in range(0, 64, 8))
    return ["".join(SHADES[min(int(p) * len(SHADES) // 17, len(SHADES) - 1)] * 2 for p in row) for row in rows]


def commands(url, digit):
    """Yields shell lines that can be pasted as they are. The first sets DIGIT to the 64 pixels, as in README and the guide."""
    yield f"DIGIT='{json.dumps(digit['pixels'], separators=(',', ':'))}'"
    for name in ("digits-svm", "digits-forest", "digits-logreg", "digits"):
        yield f'curl -s {url}/{name}/predict -d "{{\\"input\\": $DIGIT}}"'
    yield f'curl -s {url}/digits/feedback -d "{{\\"input\\": $DIGIT, \\"label\\": {digit["label"]}}}"'
    yield f"curl -s {url}/noop/predict -d '{{\"input\": [1, 2.5, -3]}}'"
    yield f"curl -s {url}/echo/predict -H 'Content-Type: text/plain' -d 'hello'"


def main():
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:1337"
    pid = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    if not wait_until_ready(url, pid):
        return 1
    digit = json.loads(DIGIT.read_text())
    print(f"\n==> Xebec is ready at {url}. A digit that the models have not seen (a {digit['label']}):\n")
    for line in picture(digit["pixels"]):
        print("      " + line)
    print("\n==> Try, in another terminal:\n")
    for line in commands(url, digit):
        print("  " + line)
    print("\n==> Ctrl-C stops everything.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
