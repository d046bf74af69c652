"""serve refuses what cannot work before it connects, and says where it is and what to do."""

import functools
import os

import numpy as np
import pytest

import xebec
from xebec import _protocol as p
from xebec._check import check_handlers, taken
from xebec._model import Handlers


class Model:
    def predict(self, batch):
        return batch

    def with_contexts(self, batch, contexts):
        return batch

    @staticmethod
    def static(batch):
        return batch

    @classmethod
    def of_class(cls, batch):
        return batch

    def __call__(self, batch):
        return batch


class Later:
    async def __call__(self, batch):
        return batch


def two(batch, contexts):
    return batch


def context(batch, user, context):
    return batch


def optional(batch, factor=2, *, offset=0):
    return batch


def anything(*args, **kwargs):
    return args[0]


def keyword(batch, *, contexts):
    return batch


def scaled(factor, batch):
    return batch


async def later(batch):
    return batch


def words(batch):
    yield batch


@pytest.mark.parametrize(
    "predict, options",
    [
        (len, {}),
        (np.sqrt, {}),
        (list, {}),
        (lambda batch: batch, {}),
        (Model().predict, {}),
        (Model().with_contexts, {"contexts": True}),
        (Model.static, {}),
        (Model().of_class, {}),
        (Model(), {}),
        (Later(), {}),
        (optional, {}),
        (optional, {"contexts": True}),
        (anything, {"contexts": True, "parameters": True, "calls": True}),
        (functools.partial(scaled, 2), {}),
        (functools.partial(optional, offset=1), {}),
        (functools.partial(keyword, contexts=[]), {}),
        (functools.partial(Model().with_contexts, contexts=[]), {}),
        (functools.partial(np.add, 1), {}),
        (two, {"contexts": True}),
        (two, {"calls": True}),
        (words, {"step": lambda states: []}),
        (two, {"contexts": True, "feedback": lambda batch, labels, contexts: None, "accuracy": lambda: 0.5}),
        (two, {"parameters": True, "feedback": lambda batch, labels: None}),
    ],
)
def test_what_can_run(predict, options):
    check_handlers(Handlers(predict, **options))


@pytest.mark.parametrize(
    "predict, options, text",
    [
        (two, {}, "takes (batch, contexts), but it is called as predict(batch): add contexts=True to serve"),
        (
            context,
            {},
            "takes (batch, user, context), but it is called as predict(batch): give the others default values, or add contexts=True or "
            "parameters=True or calls=True to serve",
        ),
        (
            Model().predict,
            {"contexts": True, "calls": True},
            "takes (batch), but it is called as predict(batch, contexts, calls): give it 3 arguments, or leave out contexts=True and "
            "calls=True",
        ),
        (lambda: 1, {}, "takes (), but it is called as predict(batch): give it one argument"),
        (Model().with_contexts, {}, "takes (batch, contexts), but"),
        (Model.predict, {}, "takes (self, batch), but it is called as predict(batch): give the others default values"),
        (keyword, {}, "needs the keyword argument 'contexts', but it is called as predict(batch): give it a default value"),
        (functools.partial(scaled, batch=1), {"contexts": True}, "takes (factor), but it is called as predict(batch, contexts)"),
        (functools.partial(scaled, factor=1), {}, "needs the keyword argument 'batch', but"),
        (Model, {}, "predict is the class Model; expected a function, for example a method of an instance: Model().predict"),
        (type("M", (), {"predict": len})(), {}, "predict is M; expected a function; pass its method: predict=model.predict"),
        (len, {"feedback": lambda batch: None}, "takes (batch), but it is called as feedback(batch, labels): give it 2 arguments"),
        (len, {"accuracy": lambda batch: None}, "takes (batch), but it is called as accuracy(): give the others default values"),
        (len, {"step": lambda: None}, "takes (), but it is called as step(states): give it one argument"),
        (len, {"feedback": two, "contexts": True}, "it is called as feedback(batch, labels, contexts): give it 3 arguments"),
        (len, {"step": later}, "is async, but it is called as a plain function: write `def`, not `async def`"),
        (len, {"accuracy": Later().__call__}, "but it is called as accuracy()"),
        (later, {"step": len}, "is async, but with step it returns the state of a sequence"),
    ],
)
def test_what_cannot_run(predict, options, text):
    with pytest.raises(TypeError) as e:
        check_handlers(Handlers(predict, **options))
    assert text in str(e.value), e.value


def test_feedback_that_would_not_run():
    async def learn(batch, labels):
        pass

    def learns(batch, labels):
        yield

    for feedback, text in ((learn, "is async"), (learns, "is a generator function, of which nothing would run")):
        with pytest.raises(TypeError, match=rf"feedback \(.*test_check.py:\d+\) {text}"):
            xebec.serve(len, feedback=feedback)


def test_where_it_is():
    line = two.__code__.co_firstlineno
    with pytest.raises(TypeError, match=rf"xebec.serve: predict \(\S*test_check.py:{line}\) takes"):
        xebec.serve(two)
    with pytest.raises(TypeError, match=rf"xebec.try_predict: predict \(\S*test_check.py:{line}\) takes .* to try_predict"):
        xebec.try_predict(two, [1], inputs="int64[]", outputs="int64[]")
    assert taken(len) is None


def test_the_process_ends_before_it_connects(start):
    gw = start("import xebec\n\ndef predict(batch, contexts):\n    return batch\n\nxebec.serve(predict)\n", serve=False)
    status, err = gw.wait()
    assert status == 1 and err.rstrip().endswith(
        "model.py:3) takes (batch, contexts), but it is called as predict(batch): add contexts=True to serve"
    )


def test_a_generator_that_is_not_declared(start):
    """The gateway refuses it, and the worker says which function is meant."""
    gw = start("import xebec\n\ndef predict(batch):\n    yield batch\n\nxebec.serve(predict)\n", serve=False)
    gw.accept()
    gw.send(p.REFUSED, p.encode_refused(p.Refused(3, "add stream: true to its manifest")))
    status, err = gw.wait()
    assert status == 1 and "add stream: true to its manifest. predict (" in err and "model.py:3) is a generator function" in err


def test_a_coroutine_that_is_hidden(start):
    """What only a call shows fails with what to do, and without a warning of Python."""
    gw = start("import xebec\nasync def later(batch):\n    return batch\nxebec.serve(lambda batch: later(batch))\n")
    r, text = gw.predict([b"x"])
    assert r.status == p.BAD_OUTPUT and "Write `async def predict" in text, text
    gw.stop()


def test_read_only_arrays_raise_no_warning_of_torch(start):
    said = "The given NumPy array is not writable, and PyTorch does not support non-writable tensors."
    source = f"import warnings, xebec\ndef predict(batch):\n    warnings.warn({said!r})\n    return batch\nxebec.serve(predict)\n"
    gw = start(source, "int64[]", "int64[]")
    assert gw.predict(np.arange(2))[1].tolist() == [0, 1]
    gw.stop()  # it has written nothing to stderr


def test_prints_before_serve(start):
    """The gateway sets PYTHONUNBUFFERED. What a model prints while it loads can be read at once, and later prints are whole lines."""
    source = (
        "import os, xebec\nprint('loading')\nos.read(FD, 1)\n"
        "def predict(batch):\n    print('got', len(batch))\n    return batch\nxebec.serve(predict)\n"
    )
    reader, writer = os.pipe()
    gw = start(source.replace("FD", str(reader)), serve=False, env={"PYTHONUNBUFFERED": "1"}, pass_fds=(reader,))
    assert gw.process.stdout.readline() == b"loading\n"
    os.write(writer, b"x")
    gw.greet()
    gw.grow()
    gw.predict([b"a", b"b"])
    assert os.read(gw.process.stdout.fileno(), 100) == b"got 2\n"
    gw.close()
    os.close(reader)
    os.close(writer)
