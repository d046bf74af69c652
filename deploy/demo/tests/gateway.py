"""Runs a gateway for the tests: the real program with real workers, on free ports. It serves the demo unless told otherwise."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[3]
PROGRAM = Path(os.environ.get("XEBEC_BIN", ROOT / "bin" / "xebec"))
READY_SECONDS = 120  # five Python workers on a busy machine
STOP_SECONDS = 30
POLL_SECONDS = 0.05


def free_address():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % s.getsockname()[1]


class Gateway:
    """Use it as a context manager; `functions` and `admin` are host:port."""

    def __init__(self, directory, config=ROOT / "deploy" / "demo"):
        self.config = config
        self.functions, self.admin = free_address(), free_address()
        self.log = directory / "gateway.log"
        self.data = directory / "data"

    def __enter__(self):
        self.data.mkdir()
        command = [PROGRAM, "serve", "--config", self.config, "--listen", self.functions, "--admin", self.admin]
        command += ["--python", sys.executable, "--data-dir", self.data]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([str(word) for word in command], cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def wait_until_ready(self):
        give_up = time.monotonic() + READY_SECONDS
        while time.monotonic() < give_up:
            assert self.process.poll() is None, f"the gateway ended with {self.process.returncode}:\n{self.log.read_text()}"
            try:
                with urllib.request.urlopen(f"http://{self.functions}/readyz", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(POLL_SECONDS)
        raise AssertionError(f"not ready after {READY_SECONDS} s:\n{self.log.read_text()}")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    def __exit__(self, *_):
        self.stop()
