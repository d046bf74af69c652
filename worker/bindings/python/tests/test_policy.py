"""Selection policies in Python: the adapter alone, with models that answer in this process, and behind a gateway of the tests."""

import asyncio
import json
import time

import numpy as np
import pytest
from lines import Callee

import xebec
from xebec import _protocol as p
from xebec import _serve, policy
from xebec._model import Call

NO_CALL = Call()


class Recorded:
    """Asks what it is told to, answers with what has come, and remembers what it has observed."""

    def __init__(self, ask=("a", "b")):
        self.ask = ask

    def init(self):
        return []

    def select(self, s, x):
        return self.ask(x) if callable(self.ask) else self.ask

    def combine(self, s, x, pred):
        return "+".join(f"{m}:{pred[m]}" for m in sorted(pred)) + f" after {len(s)}", len(pred) / 2

    def observe(self, s, x, y, pred):
        if y == "bad":
            raise ValueError("a bad label")
        return [*s, (y, dict(pred))]


@pytest.fixture
def models(monkeypatch):
    """Models by name: a function from an input to an output, which may raise. Returns what was called."""
    made, calls = {}, []

    async def many(name, xs, *, query, context, timeout):
        calls.append((name, len(xs), query, context, timeout))
        return [made[name](x) for x in xs]

    monkeypatch.setattr(policy.acall, "many", many)
    made["calls"] = calls
    return made


def predict(served, batch, contexts=None, calls=None):
    contexts = contexts or [b""] * len(batch)
    return asyncio.run(served.predict(batch, contexts, calls or [NO_CALL] * len(batch)))


def test_select_combine_observe(models):
    models.update(a=str.upper, b=str.title)
    served = policy.Served(Recorded(), ["a", "b"])
    assert predict(served, ["xy"]) == (["a:XY+b:Xy after 0"], [1.0])
    served.feedback(["xy", "never asked"], ["label", "label"], [b"", b""])
    assert (served.observed, served.forgotten) == (1, 1)
    assert predict(served, ["z"])[0] == ["a:Z+b:Z after 1"]
    assert served._states[b""] == [("label", {"a": "XY", "b": "Xy"})]


def test_each_context_has_a_state_and_calls_of_its_own(models):
    models.update(a=str.upper)
    served = policy.Served(Recorded(["a"]), ["a"], contexts=2)
    predict(served, ["x", "y", "x"], [b"ann", b"ben", b"ben"])
    assert models["calls"] == [("a", 1, 0, b"ann", None), ("a", 2, None, b"ben", None)]
    served.feedback(["x"], ["for ben"], [b"ben"])
    assert predict(served, ["x", "x"], [b"ann", b"ben"])[0] == ["a:X after 0", "a:X after 1"]
    predict(served, ["x"], [b"new"])  # ann, who came first, is forgotten
    assert list(served._states) == [b"ben", b"new"]


def test_each_query_asks_its_own_models(models):
    models.update(a=str.upper, b=str.lower)
    served = policy.Served(Recorded(lambda x: [x[0]]), ["a", "b"])
    assert predict(served, ["aX", "bX", "aY"])[0] == ["a:AX after 0", "b:bx after 0", "a:AY after 0"]
    assert [call[:3] for call in models["calls"]] == [("a", 2, None), ("b", 1, 1)]


def test_a_model_that_fails_is_left_out(models):
    def fails(x):
        raise xebec.CallError("b", "deadline_exceeded", "too late")

    models.update(a=str.upper, b=fails)
    served = policy.Served(Recorded(), ["a", "b"])
    assert predict(served, ["x"]) == (["a:X after 0"], [0.5])
    served.policy.ask = ["b"]
    (answer,), confidences = predict(served, ["y"])
    assert isinstance(answer, xebec.CallError) and answer.code == "deadline_exceeded" and confidences == [None]
    served.feedback(["y"], ["label"], [b""])
    assert served.forgotten == 1  # nothing was predicted


def test_an_input_that_a_model_refuses_costs_the_others_nothing(models):
    def picky(x):
        if x == "bad":
            raise xebec.CallError("a", "invalid_input", "no")
        return x

    models.update(a=picky)
    answers, _ = predict(policy.Served(Recorded(["a"]), ["a"]), ["x", "bad", "y"])
    assert (answers[0], answers[2]) == ("a:x after 0", "a:y after 0") and answers[1].refuses


def test_the_deadline(models):
    models.update(a=str.upper)
    soon = Call(deadline=time.monotonic() + 10)
    predict(policy.Served(Recorded(["a"]), ["a"]), ["x", "y"], calls=[Call(), soon])
    predict(policy.Served(Recorded(["a"]), ["a"], timeout=0.5), ["x"], calls=[soon])
    predict(policy.Served(Recorded(["a"]), ["a"]), ["x"], calls=[Call(deadline=time.monotonic() - 1)])
    first, second, past = (call[4] for call in models["calls"])
    assert 0 < first <= 8 and second == 0.5 and past == 0.001


def test_predictions_are_remembered_for_so_many_queries(models):
    models.update(a=str.upper)
    served = policy.Served(Recorded(["a"]), ["a"], remember=2)
    for x in "xyz":
        predict(served, [x])
    served.feedback(["x", "y", "z"], [1, 2, 3], [b""] * 3)
    assert (served.observed, served.forgotten) == (2, 1)


def test_a_policy_that_is_wrong(models):
    models.update(a=str.upper)
    for ask in ([], ["c"], ["a", "c"], "c", [1]):
        with pytest.raises(ValueError, match=r"select returned .*; expected one or more of \['a'\]"):
            predict(policy.Served(Recorded(ask), ["a"]), ["x"])
    served = policy.Served(Recorded("a"), ["a"])  # one name may stand alone
    predict(served, ["x", "y"])
    with pytest.raises(ValueError, match="a bad label"):
        served.feedback(["x", "y"], ["bad", "good"], [b"", b""])
    assert served.observed == 1  # the other label counts
    served.policy.observe = lambda *_: None
    with pytest.raises(TypeError, match="observe returned None; expected the new state"):
        served.feedback(["x"], ["good"], [b""])
    served.policy.combine = lambda *_: "x"
    with pytest.raises(TypeError, match="combine returned a str; expected a pair"):
        predict(served, ["x"])


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((object(), ["a"]), {}, "object has no method init"),
        ((Recorded(), "a"), {}, "models is 'a'; expected a list"),
        ((Recorded(), []), {}, "models is"),
        ((Recorded(), ["a", "a"]), {}, "different names"),
        ((Recorded(), ["a"]), {"contexts": 0}, "contexts is 0; expected 1 or more"),
        ((Recorded(), ["a"]), {"remember": -1}, "remember is -1"),
        ((Recorded(), ["a"]), {"timeout": 0}, "timeout is 0; expected seconds above 0"),
        ((Recorded(), ["a"]), {"timeout": float("nan")}, "timeout is nan"),
    ],
)
def test_what_serve_refuses(arguments, options, text):
    with pytest.raises((TypeError, ValueError), match=text):
        policy.serve(*arguments, **options)


def test_serve_registers_the_authors_file(monkeypatch):
    """As xebec.testing finds it: the file that called xebec.policy.serve, not this package's."""
    registered = []
    monkeypatch.setattr(_serve, "registered", registered)
    monkeypatch.delenv("XEBEC_TOKEN", raising=False)
    policy.serve(Recorded(), ["a", "b"], text=True)
    ((file, handlers),) = registered
    assert file == __file__
    assert (handlers.contexts, handlers.calls, handlers.confidences, handlers.text, handlers.concurrency) == (True, True, True, True, 16)


def test_equal_inputs_have_equal_keys():
    def key(x, context=b""):
        return policy._key(context, x)

    row = np.arange(6, dtype="float32").reshape(2, 3)
    assert key(row) == key(row.copy()) == key(np.arange(12, dtype="float32").reshape(2, 2, 3)[0])
    assert key({"a": b"1", "b": 2}) == key({"b": 2, "a": b"1"}) and key([b"x", [b"y"]]) == key([b"x", [b"y"]])
    different = [row, row.reshape(3, 2), row + 1, b"x", [b"x"], [b"x", b""], [[b"x"], b""], {"a": b"x"}, {"a": b"y"}, "y", 1, 1.5]
    assert len({key(x) for x in different}) == len(different)
    assert key(b"x", b"a") != key(b"x", b"b") and key(b"ab", b"c") != key(b"b", b"ca")


def test_behind_a_gateway(calling):
    """Arrays, several inputs and outputs, and a call that fails, through the real worker."""

    def answer(sign):
        return lambda head, v: [v[0].sum(axis=1) * sign, [t + "!" for t in v[1]]]

    signature = ({"x": "float32[2]", "t": "string[]"}, {"y": "float32[]", "s": "string[]"})
    late = Callee(*signature, lambda head, values: (504, "too late", "deadline_exceeded"))
    gw, lines = calling(
        "import xebec.policy\n"
        "class Mean:\n"
        "    def init(self):\n"
        "        return None\n"
        "    def select(self, s, x):\n"
        "        return ['plus', 'late'] if x['x'][0] < 10 else ['minus']\n"
        "    def combine(self, s, x, pred):\n"
        "        (y,) = pred.values()\n"
        "        return y, None\n"
        "    def observe(self, s, x, y, pred):\n"
        "        return s\n"
        "xebec.policy.serve(Mean(), ['plus', 'minus', 'late'], timeout=20)\n",
        {"plus": Callee(*signature, answer(1)), "minus": Callee(*signature, answer(-1)), "late": late},
        *signature,
    )
    for _ in range(2):
        r, out = gw.predict(np.array([[1, 2], [30, 4]], "float32"), ["one", "two"])
        assert r.status == p.OK, out
        assert json.dumps([out[0].tolist(), out[1]]) == '[[3.0, -34.0], ["one!", "two!"]]'
    assert {head["xebec-slo-ms"] for head in lines.heads if "xebec-slo-ms" in head} == {"20000.000"}
    gw.stop()
