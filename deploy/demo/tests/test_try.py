"""The printed commands can be pasted into a shell, and their bodies are valid inputs of the functions."""

import importlib
import json
import os
import shlex

import train

try_it = importlib.import_module("try")  # `try` is a keyword


def test_commands_are_shell_lines_with_valid_bodies():
    digit = json.loads(try_it.DIGIT.read_text())
    first, *curls = try_it.commands("http://127.0.0.1:1337", digit)
    (assignment,) = shlex.split(first)
    name, _, body = assignment.partition("=")
    assert name == "DIGIT"
    assert json.loads(body) == digit["pixels"]
    called = {shlex.split(line)[2].split("/")[-2] for line in curls}
    assert called == {path.name for path in train.MODELS.iterdir() if path.is_dir()} | {"digits"}
    for line in curls:
        words = shlex.split(line)
        assert words[0] == "curl" and "-d" in words


def test_the_digit_is_held_out():
    digit = json.loads(try_it.DIGIT.read_text())
    _, pixels, _, labels = train.split()
    assert digit == {"label": int(labels[0]), "pixels": [int(p) for p in pixels[0]]}


def test_picture_covers_the_scale_of_grey():
    lines = try_it.picture([0] * 32 + [16] * 32)
    assert lines == [" " * 16] * 4 + ["#" * 16] * 4


def test_waiting_ends_with_the_process():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    # Port 1 has no listener, so only the death of the process can end the wait.
    assert try_it.wait_until_ready("http://127.0.0.1:1", child) is False
