"""The examples on the pages work as shown.

A fenced block marked `console` is a session. Lines that begin with `$ ` are commands, a line that ends in a backslash continues on
the next, and the lines after a command are its output, in which `…` stands for anything. The sessions run against a gateway that
serves the demo; its ports replace :1337 and :1338. Assignments hold for later commands of the same page. Commands that install,
change the directory or stay in the foreground are not run. Blocks marked `python` and `json` must be valid.
"""

import ast
import json
import os
import re
import subprocess
import sys
import textwrap

import pytest
from gateway import PROGRAM, ROOT

FENCE = re.compile(r"^(?P<indent> *)```(?P<kind>\w+)[^\n]*\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"^(make|git|cd|sudo|apt|pip|python|docker|(bin/)?xebec serve)\b")


def pages():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(name for name in listed.stdout.split() if not name.startswith("bench/results/"))


def blocks(text, kind):
    return [textwrap.dedent(m["body"]) for m in FENCE.finditer(text) if m["kind"] == kind]


def session(block):
    """Returns pairs of a command and the output that the page shows for it."""
    steps, more = [], False
    for line in block.splitlines():
        if more:
            steps[-1][0] += "\n" + line
        elif line.startswith("$ "):
            steps.append([line[2:], ""])
        elif steps:
            steps[-1][1] += line + "\n"
            continue
        more = line.endswith("\\")
    return steps


def shown(output):
    """Returns the page's output as a pattern. `…` matches anything, also nothing; spaces at the ends of lines are ignored."""
    lines = [line.rstrip() for line in output.strip().splitlines()]
    return re.compile(r"\s*" + r"\n".join(re.escape(line).replace("…", ".*") for line in lines) + r"\s*", re.DOTALL)


@pytest.mark.parametrize("page", pages())
def test_code_on_the_page_is_valid(page):
    text = (ROOT / page).read_text()
    for block in blocks(text, "python"):
        ast.parse(block)
    for block in blocks(text, "json"):
        json.loads(block)


def run_session(page, gateway):
    environment = dict(os.environ, XEBEC_ADMIN=gateway.admin, XEBEC_SERVER=gateway.functions)
    environment["PATH"] = os.pathsep.join([str(PROGRAM.parent), os.path.dirname(sys.executable), environment["PATH"]])
    before = ""  # assignments of earlier commands
    for block in blocks((ROOT / page).read_text(), "console"):
        for command, output in session(block):
            if NOT_RUN.match(command):
                continue
            for port, address in (("1337", gateway.functions), ("1338", gateway.admin)):
                command = re.sub(rf"(localhost|127\.0\.0\.1):{port}\b", address, command)
            shell = ["bash", "-c", before + command]
            done = subprocess.run(
                shell, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180
            )
            assert done.returncode == 0, f"{page}: $ {command}\n{done.stdout}"
            as_shown = not output.strip() or shown(output).fullmatch(done.stdout)
            assert as_shown, f"{page}: $ {command}\nthe page shows\n{output}\nthe command prints\n{done.stdout}"
            if re.match(r"^\w+=", command):
                before += command + "\n"


def test_sessions_on_the_pages_are_true(gateway):
    for page in pages():
        run_session(page, gateway)


def test_sessions_are_read_as_described():
    page = "text\n```console\n$ A=1\n$ echo \\\n  two\ntwo …\n\n$ true\n```\n```console\nno command\n```\n"
    assert [session(b) for b in blocks(page, "console")] == [[["A=1", ""], ["echo \\\n  two", "two …\n\n"], ["true", ""]], []]
    assert shown("a … c\nd").fullmatch("a b\nb c  \nd\n") is None  # spaces inside count
    assert shown('{"id":…,"x":1}\n').fullmatch('{"id":77,"x":1}')
    assert shown("…").fullmatch("anything\nat all\n")
