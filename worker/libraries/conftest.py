"""Trains the models and serves them by the real program, once for all tests."""

import datetime
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1] / "deploy" / "demo" / "tests")]

from gateway import Gateway  # noqa: E402  (found through the line above)

# One thread for each library, so that the models do not fight for a small machine.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """The directory of the models, trained."""
    trained = tmp_path_factory.mktemp("models")
    for directory in sorted(HERE.glob("*/xebec.yaml")):
        copy = trained / directory.parent.name
        shutil.copytree(directory.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
        if (copy / "train.py").exists():
            subprocess.run([sys.executable, "train.py"], cwd=copy, check=True)
    return trained


@pytest.fixture(scope="session")
def gateway(models, tmp_path_factory):
    with Gateway(tmp_path_factory.mktemp("gateway"), config=models) as running:
        yield running


def pytest_addoption(parser):
    parser.addoption("--report", help="a file for the results, as a table in Markdown")


def pytest_terminal_summary(terminalreporter, config):
    """Writes the report: each test with its result, and the versions of the libraries."""
    path = config.getoption("--report")
    if path is None:
        return
    rows = []
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            name = report.nodeid.split("::")[1].removeprefix("test_").replace("_", " ")
            measured = "; ".join(f"{k} {v}" for k, v in report.user_properties)
            rows.append(f"| {name} | {outcome} | {measured} |")
    libraries = [line for line in (HERE / "requirements.txt").read_text().splitlines() if "==" in line]
    lines = {d.parent.name: len(d.read_text().splitlines()) for d in sorted(HERE.glob("*/model.py"))}
    Path(path).write_text(
        f"# Models of real libraries\n\nMade by `make test-models MODELARGS=\"--report FILE\"`, {datetime.date.today()}, with Python {platform.python_version()} "
        f"on {os.cpu_count()} processors.\n\n| test | result | measured |\n|---|---|---|\n"
        + "\n".join(rows)
        + "\n\nLines of each `model.py`: "
        + ", ".join(f"{name} {n}" for name, n in lines.items())
        + ".\nVersions: "
        + ", ".join(libraries)
        + ".\n"
    )
