"""Finds the gateway, and collects which feature of which client each test has shown."""

import json
import os
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
SECONDS = 60  # a call on a busy machine
KINDS = {"works": "works", "refused": "gets an error that says why it is not there", "lacks": "is not there"}


@pytest.fixture(scope="session")
def address():
    """The gateway's function port, host:port."""
    return os.environ["XEBEC_SERVER"]


@pytest.fixture(scope="session")
def grpc_address():
    return os.environ["XEBEC_GRPC"]


@pytest.fixture
def seconds():
    return SECONDS


@pytest.fixture
def name():
    """A text that no other call has."""
    return uuid.uuid4().hex


def pytest_addoption(parser):
    parser.addoption("--results", help="a file to which a line of JSON is added for each test")


def pytest_configure(config):
    for kind, shows in KINDS.items():
        config.addinivalue_line("markers", f"{kind}(client, feature): the test shows that a feature of the client {shows}")


def pytest_collection_modifyitems(items):
    for item in items:
        if not any(item.get_closest_marker(kind) for kind in KINDS):
            raise pytest.UsageError(f"{item.nodeid}: expected a mark KIND(client, feature), where KIND is one of {', '.join(KINDS)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if path := item.config.getoption("--results"):
        if report.when == "call" or report.failed:
            with open(path, "a") as f:
                for kind in KINDS:
                    for mark in item.iter_markers(kind):
                        client, feature = mark.args
                        print(json.dumps({"client": client, "feature": feature, "kind": kind, "passed": report.passed}), file=f)
    return report
