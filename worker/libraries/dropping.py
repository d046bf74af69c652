"""What the tests of files share: they deploy a file by the real program, as its user does."""

import os
import subprocess

from gateway import PROGRAM

MADE_SECONDS = 600  # a busy machine gives a new model little time


def xebec(gateway, *arguments):
    return subprocess.run(
        [str(PROGRAM), *map(str, arguments)], env={**os.environ, "XEBEC_ADMIN": gateway.admin}, capture_output=True, text=True, timeout=MADE_SECONDS + 60
    )


def deploy(gateway, path, *flags):
    """Runs `xebec deploy` of a file or a directory. The model directory is made beside it, in `made`."""
    return xebec(gateway, "deploy", path, "--into", path.parent / "made", "--timeout", f"{MADE_SECONDS}s", *flags)


def said(gateway, name):
    """The lines that the model has printed."""
    return [line for line in xebec(gateway, "logs", name).stdout.splitlines() if " gateway: " not in line]
