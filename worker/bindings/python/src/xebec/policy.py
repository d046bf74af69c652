"""Selection policies in Python, for research: a model that chooses among other models, combines their answers and learns from labels.

The interface is that of Listing 2 of the Clipper paper (Crankshaw et al., Clipper: A low-latency online prediction serving system, NSDI
2017): init, select, combine and observe. A policy is served as a model that calls the models it chooses among, so it runs in a process of
its own, which the gateway isolates, bounds and restarts as it does any model. deploy/guide/python-policies.md says how to declare it.

    import xebec.policy

    class First:
        def init(self):
            return 0

        def select(self, s, x):
            return ["small"]

        def combine(self, s, x, pred):
            return pred["small"], None

        def observe(self, s, x, y, pred):
            return s + 1

    xebec.policy.serve(First(), ["small", "large"])

What a policy has learned is in this process, and ends with it.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, Optional, Protocol, TypeVar, Union

from . import _serve
from ._calls import CallError, acall
from ._model import Call

__all__ = ["MAX_CONTEXTS", "MAX_REMEMBERED", "Policy", "Served", "serve"]

MAX_CONTEXTS = 10_000
MAX_REMEMBERED = 10_000

# The part of the time until the deadline that the models have, unless the author says how long. The rest is for combine and
# for the way back.
PATIENCE = 0.8

# Failures of one input, which fail a call with many inputs as a whole.
_OF_ONE_INPUT = ("invalid_input", "model_error")

S = TypeVar("S")


class Policy(Protocol[S]):
    """What the author of a policy writes. S is the type of a state, which is what the policy knows in one context.

    The methods are plain functions and never called by two threads at once. x is a query's input as predict receives it: a row
    of the batch, a view that is valid during the call; for a model with several inputs a dict. A method that takes long delays
    all queries of this replica.
    """

    def init(self) -> S:
        """Returns the state of a context about which nothing is known."""

    def select(self, s: S, x: Any) -> Iterable[str]:
        """Returns the names of the models to ask, at least one."""

    def combine(self, s: S, x: Any, pred: Mapping[str, Any]) -> tuple[Any, Optional[float]]:
        """Returns the answer and the confidence in it, from 0 to 1 or None. pred has the answers of the models that have
        answered in time, at least one, by name."""

    def observe(self, s: S, x: Any, y: Any, pred: Mapping[str, Any]) -> S:
        """Returns the new state. y is the label that an app has sent, decoded JSON; pred is what combine was given for this x.
        It may change s and return it."""


class Served:
    """A policy as a model: the functions that xebec.serve takes. serve makes one; tests may call its methods.

    It keeps the states of the contexts that were used last, and the predictions of the queries that came last, by context and input.
    """

    def __init__(
        self,
        policy: Policy[Any],
        models: Sequence[str],
        *,
        timeout: Optional[float] = None,
        contexts: int = MAX_CONTEXTS,
        remember: int = MAX_REMEMBERED,
    ) -> None:
        for method in ("init", "select", "combine", "observe"):
            if not callable(getattr(policy, method, None)):
                raise TypeError(f"xebec.policy: {type(policy).__name__} has no method {method}; expected init, select, combine and observe")
        if isinstance(models, str) or not models or not all(isinstance(m, str) and m for m in models) or len(set(models)) < len(models):
            raise ValueError(f"xebec.policy: models is {models!r}; expected a list of different names, those of `calls` in the manifest")
        for name, bound in (("contexts", contexts), ("remember", remember)):
            if bound < 1:
                raise ValueError(f"xebec.policy: {name} is {bound}; expected 1 or more")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"xebec.policy: timeout is {timeout}; expected seconds above 0, or None")
        self.policy, self.models, self.timeout = policy, tuple(models), timeout
        self.observed = self.forgotten = 0  # labels that observe has got, and those whose predictions are not remembered
        self._max_contexts, self._max_remembered = contexts, remember
        self._states: OrderedDict[Any, Any] = OrderedDict()
        self._remembered: OrderedDict[bytes, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()  # predict and feedback run on different threads

    async def predict(self, batch: Any, contexts: Sequence[Any], calls: Sequence[Call]) -> Any:
        """Selects, asks the models, and combines what has come in time."""
        rows = [_row(batch, i) for i in range(len(contexts))]
        groups: dict[tuple[str, Any], list[int]] = {}
        with self._lock:
            for i, (x, context) in enumerate(zip(rows, contexts)):
                for model in self._chosen(self.policy.select(self._state(context), x)):
                    groups.setdefault((model, context), []).append(i)
        timeout = self._patience(calls)
        answers = await asyncio.gather(*(self._ask(m, batch, of, context, timeout) for (m, context), of in groups.items()))
        preds: list[dict[str, Any]] = [{} for _ in rows]
        failed: dict[int, CallError] = {}
        for ((model, _), of), answer in zip(groups.items(), answers):
            for i, one in zip(of, answer):
                if isinstance(one, CallError):
                    failed[i] = one
                else:
                    preds[i][model] = one
        outputs: list[Any] = []
        confidences: list[Optional[float]] = []
        with self._lock:
            for i, (x, context, pred) in enumerate(zip(rows, contexts, preds)):
                if not pred:
                    outputs.append(failed[i])
                    confidences.append(None)
                    continue
                combined = self.policy.combine(self._state(context), x, pred)
                if not isinstance(combined, tuple) or len(combined) != 2:
                    got = type(combined).__name__
                    raise TypeError(f"combine returned a {got}; expected a pair: the answer, and its confidence or None")
                outputs.append(combined[0])
                confidences.append(combined[1])
                self._remember(_key(context, x), pred)
        return outputs, confidences

    def feedback(self, batch: Any, labels: Sequence[Any], contexts: Sequence[Any]) -> None:
        """Lets the policy observe the labels of queries whose predictions are remembered. A failure is raised after all of them."""
        failure: Optional[Exception] = None
        with self._lock:
            for i, (y, context) in enumerate(zip(labels, contexts)):
                x = _row(batch, i)
                pred = self._remembered.get(_key(context, x))
                if pred is None:
                    self.forgotten += 1
                    continue
                try:
                    state = self.policy.observe(self._state(context), x, y, pred)
                    if state is None:
                        raise TypeError("observe returned None; expected the new state")
                    self._states[context] = state
                    self.observed += 1
                except Exception as e:
                    failure = failure or e
        if failure is not None:
            raise failure

    def _chosen(self, selected: Iterable[str]) -> list[str]:
        chosen = list(dict.fromkeys([selected] if isinstance(selected, str) else selected))
        if not chosen or not all(model in self.models for model in chosen):
            raise ValueError(f"select returned {chosen!r}; expected one or more of {list(self.models)!r}")
        return chosen

    def _state(self, context: Any) -> Any:
        """The context's state. The caller holds the lock."""
        if context in self._states:
            self._states.move_to_end(context)
        else:
            self._states[context] = self.policy.init()
            if len(self._states) > self._max_contexts:
                self._states.popitem(last=False)
        return self._states[context]

    def _remember(self, key: bytes, pred: dict[str, Any]) -> None:
        self._remembered[key] = pred
        self._remembered.move_to_end(key)
        if len(self._remembered) > self._max_remembered:
            self._remembered.popitem(last=False)

    def _patience(self, calls: Sequence[Call]) -> Optional[float]:
        """How long the models have, in seconds; None: as long as they take."""
        if self.timeout is not None:
            return self.timeout
        deadlines = [call.deadline for call in calls if call.deadline is not None]
        return max((min(deadlines) - time.monotonic()) * PATIENCE, 0.001) if deadlines else None

    async def _ask(self, model: str, batch: Any, of: list[int], context: Any, timeout: Optional[float]) -> list[Any]:
        """What a model answers to some queries of the batch, with a CallError in the place of an answer that has not come."""
        query = of[0] if len(of) == 1 else None
        try:
            answers = await acall.many(model, _rows(batch, of), query=query, context=context, timeout=timeout)
        except CallError as e:
            if len(of) == 1 or e.code not in _OF_ONE_INPUT:
                return [e] * len(of)
            each = await asyncio.gather(*(self._ask(model, batch, [i], context, timeout) for i in of))
            return [answer for (answer,) in each]
        return [_row(answers, k) for k in range(len(of))]


def serve(
    policy: Policy[Any],
    models: Sequence[str],
    *,
    timeout: Optional[float] = None,
    contexts: int = MAX_CONTEXTS,
    remember: int = MAX_REMEMBERED,
    text: bool = False,
) -> NoReturn:
    """Serves a policy as a model, in place of :func:`xebec.serve`. Call it last, from the main thread: it does not return.

    models are the names of the models, or functions, that the policy chooses among. The manifest names them in ``calls``, and
    has their inputs and outputs.

    timeout: how long the models have to answer, in seconds. combine gets what has come by then. The default is four fifths of
    the time that is left until the query's deadline.
    contexts: how many contexts have a state. The one that was used least recently is forgotten, and starts again with init.
    remember: for how many queries the predictions are kept until their labels come. A label that comes later teaches nothing,
    and neither does one of a query that another replica has answered.
    text: as for xebec.serve; contexts are then ``str``.
    """
    served = Served(policy, models, timeout=timeout, contexts=contexts, remember=remember)
    _serve.serve(served.predict, feedback=served.feedback, contexts=True, calls=True, confidences=True, text=text)


def _row(batch: Any, i: int) -> Any:
    return {name: column[i] for name, column in batch.items()} if isinstance(batch, dict) else batch[i]


def _rows(batch: Any, of: list[int]) -> Any:
    """Some queries of a batch, in the same form."""
    if isinstance(batch, dict):
        return {name: _rows(column, of) for name, column in batch.items()}
    if len(of) == len(batch):
        return batch
    return batch[of] if hasattr(batch, "dtype") else [batch[i] for i in of]


def _key(context: Union[bytes, str], x: Any) -> bytes:
    """Names a context and an input: equal ones have the same key."""
    digest = hashlib.blake2b(digest_size=16)

    def feed(item: Any) -> None:
        if isinstance(item, dict):
            for name in sorted(item):
                feed(name)
                feed(item[name])
            return
        if isinstance(item, (list, tuple)):
            digest.update(b"[%d:" % len(item))
            for one in item:
                feed(one)
            return
        if isinstance(item, str):
            item = item.encode("utf-8", "surrogatepass")
        elif hasattr(item, "tobytes"):
            digest.update(repr(getattr(item, "shape", ())).encode())
            item = item.tobytes()
        elif not isinstance(item, bytes):
            item = repr(item).encode()
        digest.update(b"%d:" % len(item))
        digest.update(item)

    feed(context)
    feed(x)
    return digest.digest()
