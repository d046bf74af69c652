"""Type checkers: what a model's author may pass to serve, and what they say to the rest. ruff and mypy find nothing in this package."""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent


def run(module, *words, cache):
    env = dict(os.environ, MYPYPATH=str(PACKAGE / "src"), MYPY_CACHE_DIR=str(cache), RUFF_CACHE_DIR=str(cache))
    return subprocess.run([sys.executable, "-m", module, *words], cwd=PACKAGE, env=env, capture_output=True, text=True)


def test_what_serve_accepts_and_refuses(tmp_path):
    done = run("mypy", "--strict", "--config-file=", "tests/typed/good.py", "tests/typed/bad.py", cache=tmp_path)
    found = set()
    for line in done.stdout.splitlines():
        at = re.match(r"(\S+):(\d+): error: ", line)
        if at:
            found.add((Path(at[1]).name, int(at[2])))
    source = (HERE / "typed" / "bad.py").read_text("utf-8").splitlines()
    wrong = {("bad.py", i) for i, line in enumerate(source, 1) if line.endswith("# wrong")}
    assert found == wrong, done.stdout + done.stderr
    assert len(wrong) > 20


def test_mypy_finds_nothing_here(tmp_path):
    done = run("mypy", cache=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_finds_nothing_here(tmp_path):
    done = run("ruff", "check", ".", cache=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
