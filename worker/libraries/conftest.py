"""Trains the models and serves them by the real program, once for all tests."""

import datetime
import importlib.metadata
import importlib.util
import os
import platform
import re
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

# Its libraries are installed by `--torch` of .ci/models.sh only.
collect_ignore = [] if importlib.util.find_spec("torch") else ["test_torch.py"]


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


@pytest.fixture(scope="session")
def bare(tmp_path_factory):
    """A gateway without models, for tests that deploy files."""
    with Gateway(tmp_path_factory.mktemp("bare"), config=tmp_path_factory.mktemp("nothing")) as running:
        yield running


def pytest_addoption(parser):
    parser.addoption("--report", help="a file for the results, as a table in Markdown")


def versions():
    """Of the packages that the lists of requirements name, those that are here, with the versions that are here."""
    found = {}
    for file in sorted(HERE.glob("requirements*.txt")):
        for name in re.findall(r"^([A-Za-z0-9_.-]+)==", file.read_text(), re.M):
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:  # of an optional list
                continue
    return ", ".join(f"{name} {version}" for name, version in sorted(found.items(), key=lambda item: item[0].lower()))


def row(report, outcome):
    """What was tested, and its line of the report's table: with what it was compared, and how it went."""
    said = dict(report.user_properties)
    name = report.nodeid.split("::")[1].removeprefix("test_")
    what = said.pop("file", name.split("[")[0].replace("_", " ") + (f" [{name.split('[', 1)[1]}" if "[" in name else ""))
    compared = said.pop("compared with", "")
    return what, f"| {what} | {compared} | {outcome} | {report.duration:.1f} | {'; '.join(f'{k} {v}' for k, v in said.items())} |"


HEAD = "| what | compared with | result | seconds | measured |\n|---|---|---|---|---|\n"


def rows_of(path):
    """The lines of the table of a report, by what was tested."""
    if not path.exists() or HEAD not in path.read_text():
        return {}
    table = path.read_text().split(HEAD)[1].split("\n\n")[0]
    return {line.split(" | ")[0].removeprefix("| "): line for line in table.splitlines()}


def pytest_terminal_summary(terminalreporter, config):
    """Writes the report: each test with its result, and the versions of the libraries. A run of some tests renews their lines only."""
    if config.getoption("--report") is None:
        return
    path = Path(config.getoption("--report"))
    rows = rows_of(path)
    for outcome in ("passed", "failed", "error"):
        rows |= dict(row(report, outcome) for report in terminalreporter.stats.get(outcome, []))
    count = {outcome: sum(f"| {outcome} |" in line for line in rows.values()) for outcome in ("passed", "failed", "error")}
    lines = {d.parent.name: len(d.read_text().splitlines()) for d in sorted(HERE.glob("*/model.py"))}
    path.write_text(
        f"# Models of real libraries, {datetime.date.today()}\n\nMade by `make test-models` with `--report FILE`, Python {platform.python_version()}, on {os.cpu_count()} processors "
        f"at load {os.getloadavg()[1]:.0f}: {', '.join(f'{n} {outcome}' for outcome, n in count.items() if n)}.\nSeconds are of the whole test with its deployment; on a busy machine "
        "most of them are waiting.\n\n"
        + HEAD
        + "\n".join(rows.values())
        + "\n\nLines of each `model.py`: "
        + ", ".join(f"{name} {n}" for name, n in lines.items())
        + f".\n\nVersions: {versions()}.\n"
    )
