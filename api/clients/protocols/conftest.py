"""Finds the gateway, and collects which feature of which client each test has shown."""

import json
import os
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
SECONDS = 60  # a call on a busy machine


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
    config.addinivalue_line("markers", "works(client, feature): the test shows that a feature of the client works")
    config.addinivalue_line("markers", "refused(client, feature): the test shows that a feature of the client gets an error that says why it is not there")


def pytest_collection_modifyitems(items):
    for item in items:
        if not any(item.iter_markers("works")) and not any(item.iter_markers("refused")):
            raise pytest.UsageError(f"{item.nodeid}: expected a mark works(client, feature) or refused(client, feature)")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if path := item.config.getoption("--results"):
        if report.when == "call" or report.failed:
            with open(path, "a") as f:
                for kind in ("works", "refused"):
                    for mark in item.iter_markers(kind):
                        client, feature = mark.args
                        print(json.dumps({"client": client, "feature": feature, "kind": kind, "passed": report.passed}), file=f)
    return report
