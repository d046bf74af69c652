"""What serve refuses before it connects: functions that cannot work with its options.

A model that starts and then fails every query is found out by its callers. One that is refused here never becomes
available, and its log says where the function is and what to do.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional

from ._model import MAX_CONCURRENCY, Handlers
from ._tensors import describe

# Of inspect, without the import, which takes as long as the rest of a small worker's start.
_VARARGS, GENERATOR, _COROUTINE, ASYNC_GENERATOR = 0x4, 0x20, 0x80, 0x200


class _Taken(NamedTuple):
    """The positional arguments that a function takes."""

    names: tuple[str, ...]
    least: int
    most: Optional[int]  # None: any number
    keywords: tuple[str, ...]  # those that it needs as keywords


def is_async(predict: Any) -> bool:
    """Whether predict is an async function, or an object whose call is one."""
    return bool(flags_of(predict) & _COROUTINE)


def is_generator(predict: Any) -> bool:
    """Whether predict is a generator function, async or not, or an object whose call is one."""
    return bool(flags_of(predict) & (GENERATOR | ASYNC_GENERATOR))


def flags_of(predict: Any) -> int:
    """The flags of predict's code, 0 if it has none."""
    while hasattr(predict, "func"):  # functools.partial
        predict = predict.func
    code = getattr(predict, "__code__", None) or getattr(getattr(type(predict), "__call__", None), "__code__", None)  # noqa: B004
    return code.co_flags if code else 0


def _code(function: Any) -> tuple[Any, Any, int]:
    """The Python function behind a callable, its code, and how many arguments are bound; None for what is no Python code."""
    for bound, found in ((0, function), (1, getattr(type(function), "__call__", None))):  # noqa: B004
        code = getattr(found, "__code__", None)
        if code is not None:
            inner = getattr(found, "__func__", None)
            return inner or found, code, 1 if inner else bound
    return None, None, 0


def taken(function: Any) -> Optional[_Taken]:
    """What a callable takes, or None if that is not known: it is no Python code."""
    given: tuple[Any, ...] = ()
    set_by_name: dict[str, Any] = {}
    if hasattr(function, "func") and hasattr(function, "keywords"):  # functools.partial
        given, set_by_name, function = function.args, function.keywords, function.func
    inner, code, bound = _code(function)
    if code is None:
        return None
    count = code.co_argcount
    names = code.co_varnames[:count]
    least = count - len(getattr(inner, "__defaults__", None) or ())
    skipped = bound + len(given)
    by_name = [i for i in range(skipped, count) if names[i] in set_by_name]
    most = by_name[0] if by_name else count
    needed = [i for i in range(skipped, least) if i not in by_name]
    only = code.co_varnames[count : count + code.co_kwonlyargcount]
    keywords = [names[i] for i in needed if i > most]
    keywords += [name for name in only if name not in (getattr(inner, "__kwdefaults__", None) or {}) and name not in set_by_name]
    any_number = code.co_flags & _VARARGS and not by_name
    least = len([i for i in needed if i < most])
    return _Taken(names[skipped:most], least, None if any_number else max(most - skipped, 0), tuple(keywords))


def place(function: Any) -> str:
    """Where a function is, as " (model.py:12)"; empty if that is not known."""
    while hasattr(function, "func"):
        function = function.func
    code = _code(function)[1]
    if code is None:
        return ""
    file = code.co_filename
    if file.startswith(os.getcwd() + os.sep):
        file = os.path.relpath(file)
    return f" ({file}:{code.co_firstlineno})"


def check_handlers(h: Handlers, caller: str = "serve") -> None:
    """Raises TypeError for handlers that serve cannot use, before it connects."""
    handlers = (("predict", h.predict), ("feedback", h.feedback), ("accuracy", h.accuracy), ("step", h.step))
    for name, handler in handlers:
        if callable(handler) or handler is None and name != "predict":
            continue
        method = f"; pass its method: {name}=model.{name}" if callable(getattr(handler, name, None)) else ""
        raise TypeError(f"xebec.{caller}: {name} is {describe(handler)}; expected a function{method}")
    if not isinstance(h.concurrency, int) or not 1 <= h.concurrency <= MAX_CONCURRENCY:
        raise TypeError(f"xebec.{caller}: the concurrency is {h.concurrency!r}; expected a number from 1 to {MAX_CONCURRENCY}")
    if isinstance(h.predict, type) and not hasattr(h.predict, "__iter__"):
        name = h.predict.__name__
        instead = f"for example a method of an instance: {name}().predict"
        raise TypeError(f"xebec.{caller}: predict is the class {name}; expected a function, {instead}")
    options = [name for name in ("contexts", "parameters", "calls") if getattr(h, name)]
    _check_arguments(caller, "predict", h.predict, ["batch", *options], True)
    _check_arguments(caller, "feedback", h.feedback, ["batch", "labels", *options[: h.contexts]])
    _check_arguments(caller, "accuracy", h.accuracy, [])
    _check_arguments(caller, "step", h.step, ["states"])
    for name, handler in handlers[1:]:
        if handler is not None and flags_of(handler) & (_COROUTINE | ASYNC_GENERATOR):
            called = "it is called as a plain function: write `def`, not `async def`"
            raise TypeError(f"xebec.{caller}: {name}{place(handler)} is async, but {called}")
    for name, handler in handlers[1:3]:
        if handler is not None and flags_of(handler) & GENERATOR:
            why = "of which nothing would run: write it without yield"
            raise TypeError(f"xebec.{caller}: {name}{place(handler)} is a generator function, {why}")
    if h.step is not None and flags_of(h.predict) & (_COROUTINE | ASYNC_GENERATOR):
        raise TypeError(
            f"xebec.{caller}: predict{place(h.predict)} is async, but with step it returns the state of a sequence and is called as a "
            "plain function: write `def`, not `async def`"
        )


def _check_arguments(caller: str, name: str, function: Any, passed: list[str], options: bool = False) -> None:
    """Refuses a function that cannot be called with these arguments."""
    takes = taken(function) if function is not None else None
    if takes is None:
        return
    where, called = f"xebec.{caller}: {name}{place(function)}", f"{name}({', '.join(passed)})"
    if takes.keywords:
        needs = f"needs the keyword argument {takes.keywords[0]!r}"
        raise TypeError(f"{where} {needs}, but it is called as {called}: give it a default value")
    if takes.least <= len(passed) and (takes.most is None or len(passed) <= takes.most):
        return
    takes_names = f"takes ({', '.join(takes.names)})" + (" and more" if takes.most is None else "")
    given = "True" if caller == "serve" else "…"
    what = f"{where} {takes_names}, but it is called as {called}"
    if takes.least < len(passed):
        asked = [f"{option}={given}" for option in passed[1:]] if options else []
        instead = f", or leave out {' and '.join(asked)}" if asked else ""
        raise TypeError(f"{what}: give it {_count(len(passed))}{instead}")
    if not options:
        raise TypeError(f"{what}: give the others default values")
    more = takes.names[: takes.least][len(passed) :]
    known = [option for option in ("contexts", "parameters", "calls") if option not in passed]
    wanted = [option for option in known if any(n.rstrip("s") == option.rstrip("s") for n in takes.names)]
    if len(wanted) == len(more):
        raise TypeError(f"{what}: add {', '.join(f'{option}={given}' for option in wanted)} to {caller}")
    adds = " or ".join(f"{option}={given}" for option in known)
    instead = f", or add {adds} to {caller}, for what it should receive" if adds else ""
    raise TypeError(f"{what}: give the others default values{instead}")


def _count(n: int) -> str:
    return "one argument" if n == 1 else f"{n} arguments"
