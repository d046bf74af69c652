"""The demo's scripts are not a package, so the tests import them from the folder above."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from gateway import Gateway  # noqa: E402  (found through the line above)


@pytest.fixture(scope="session")
def gateway(tmp_path_factory):
    """One demo for all tests that ask for it."""
    with Gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running
