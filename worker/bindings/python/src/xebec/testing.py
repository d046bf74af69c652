"""Tests of a model directory without a gateway, with pytest or any other runner:

    import xebec.testing

    def test_the_mean():
        model = xebec.testing.load(__file__)
        assert model.predict([1, 2, 3, 6]) == 3

``load`` reads the xebec.yaml of a directory, here that of the test, and runs the script that the model's command names: the
call of ``xebec.serve`` in it registers the model and returns. Inputs and outputs are converted and checked as a gateway
does: numbers arrive as arrays of the declared types, read-only, and outputs must fit the declared ones. A query that
predict refuses raises its :class:`xebec.Error`.

Reading xebec.yaml takes PyYAML: ``pip install PyYAML``, or the extra ``testing`` of this package.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Optional, Union

from . import _serve
from ._check import is_generator
from ._model import Call, Handlers
from ._tensors import Error

__all__ = ["Model", "load"]

MANIFEST = "xebec.yaml"

if _serve.registered is None:
    _serve.registered = []  # from now on serve registers and returns, so that a model.py can be imported


class Model:
    """A model as its callers see it."""

    def __init__(self, directory: Path, declared: Mapping[str, Any], handlers: Handlers) -> None:
        self.directory, self.declared, self.handlers = directory, declared, handlers
        self.name = str(declared.get("name", directory.name))
        self.inputs = {t["name"]: _spec(t) for t in [*(declared.get("inputs") or ()), *(declared.get("columns") or ())]}
        self.outputs = {t["name"]: _spec(t) for t in declared.get("outputs") or ()}

    def __repr__(self) -> str:
        return f"<xebec.testing.Model {self.name}: {self.inputs} to {self.outputs}>"

    def predict(self, input: Any, *, context: Union[str, bytes, None] = None, parameters: Optional[dict[str, Any]] = None) -> Any:
        """The output for one input, as a caller receives it: numbers, text, bytes, lists of them, and a dict where several
        outputs are declared. Raises the query's Error if predict refuses it, and what predict raises."""
        contexts = None if context is None else [context]
        output = self.predict_batch([input], contexts=contexts, parameters=None if parameters is None else [parameters])[0]
        for value in output.values() if isinstance(output, dict) else [output]:
            if isinstance(value, Error):
                raise value
        return output

    def predict_batch(
        self,
        inputs: Sequence[Any],
        *,
        contexts: Optional[Sequence[Union[str, bytes]]] = None,
        parameters: Optional[Sequence[dict[str, Any]]] = None,
    ) -> list[Any]:
        """The outputs for several inputs that predict gets in one batch. A query that it refuses has its Error as output."""
        if self.handlers.stream:
            raise TypeError(f"model {self.name} answers in streams: use stream(input)")
        outputs = self._try(inputs, contexts, parameters)
        if self.handlers.confidences:
            outputs = outputs[0]
        return _rows(outputs, len(inputs))

    def confidences(self, inputs: Sequence[Any], **options: Any) -> list[Optional[float]]:
        """The confidences of a model that is served with confidences=True; None where it gives none."""
        if not self.handlers.confidences:
            raise TypeError(f"model {self.name} is not served with confidences=True")
        given = self._try(inputs, options.get("contexts"), options.get("parameters"))[1]
        return [None] * len(inputs) if given is None else [float(c) for c in given]

    def stream(self, input: Any, *, context: Union[str, bytes, None] = None, parameters: Optional[dict[str, Any]] = None) -> list[Any]:
        """All outputs of the stream for one input."""
        if not is_generator(self.handlers.predict):
            what = "is served with step: call its functions" if self.handlers.step else "does not answer in streams: use predict(input)"
            raise TypeError(f"model {self.name} {what}")
        outputs = self._try([input], None if context is None else [context], None if parameters is None else [parameters])
        if self.handlers.confidences:
            outputs = [output for output, _ in outputs]
        return [_plain(output) for output in outputs]

    def _try(self, inputs: Sequence[Any], contexts: Any, parameters: Any) -> Any:
        h, n = self.handlers, len(inputs)
        queries = [self._query(i, one) for i, one in enumerate(_records(inputs))]
        columns = {name: [_number(one[name], spec) for one in queries] for name, spec in self.inputs.items()}
        batch: Any = columns if len(columns) > 1 else next(iter(columns.values()))
        with _inside(self.directory):
            return _serve.try_predict(
                h.predict,
                batch,
                inputs=self.inputs,
                outputs=self.outputs,
                contexts=(contexts or [b""] * n) if h.contexts else None,
                confidences=h.confidences,
                text=h.text,
                parameters=(parameters or [{}] * n) if h.parameters else None,
                calls=[Call()] * n if h.calls else None,
            )

    def _query(self, i: int, given: Any) -> Mapping[str, Any]:
        """Query i of a batch by the names of the inputs."""
        names, rows = list(self.inputs), all(spec.endswith("[]") for spec in self.inputs.values())
        if isinstance(given, Mapping):
            if given.keys() == self.inputs.keys():
                return given
        elif len(names) == 1:
            return {names[0]: given}
        elif rows and isinstance(given, (list, tuple)) and len(given) == len(names):
            return dict(zip(names, given))
        expected = f"a dict with the keys {names}" + (
            f", or a list of {len(names)} values in this order" if rows and len(names) > 1 else ""
        )
        raise TypeError(f"input {i} of model {self.name}: expected {expected}")


def load(where: Union[str, os.PathLike[str], ModuleType], *, script: Optional[str] = None) -> Model:
    """Loads the model of a directory, or of the directory that a file lies in or below, such as the test's own __file__. The
    script is that of the model's command, unless another one is given. A module that called xebec.serve when it was
    imported is not run again."""
    directory = _directory_of(Path(str(where.__file__) if isinstance(where, ModuleType) else where).resolve())
    declared = _read(directory / MANIFEST)
    name = script or _script_of(declared, directory)
    path = directory / name
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the model's script is not there")
    registered = _serve.registered
    assert registered is not None
    before = len(registered)
    if isinstance(where, ModuleType):
        found = [handlers for file, handlers in registered if file == where.__file__][-1:]
    else:
        with _inside(directory):
            runpy.run_path(str(path), run_name="__main__")
        found = [handlers for _, handlers in registered[before:]]
    if len(found) != 1:
        raise RuntimeError(f"{path} called xebec.serve {len(found)} times; expected one call")
    model = Model(directory, declared, found[0])
    if bool(declared.get("stream")) != model.handlers.stream:
        raise TypeError(
            f"{directory / MANIFEST}: stream is {bool(declared.get('stream'))}, but predict "
            + ("is a generator" if model.handlers.stream else "is no generator function and there is no step")
        )
    return model


def _directory_of(place: Path) -> Path:
    for directory in [place, *place.parents] if place.is_dir() else place.parents:
        if (directory / MANIFEST).is_file():
            return directory
    raise FileNotFoundError(f"{place}: there is no {MANIFEST} in its directory or above")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        import yaml
    except ImportError:
        raise ImportError("xebec.testing reads xebec.yaml with PyYAML: pip install PyYAML") from None
    with open(path, encoding="utf-8") as f:
        models = [d for d in yaml.safe_load_all(f) if isinstance(d, dict) and d.get("kind", "Model") == "Model"]
    if len(models) != 1:
        raise ValueError(f"{path}: declares {len(models)} models; expected one")
    return models[0]


def _script_of(declared: Mapping[str, Any], directory: Path) -> str:
    command = (declared.get("run") or {}).get("command") or []
    for word in command[1:]:
        if isinstance(word, str) and not word.startswith("-"):
            return word
    raise ValueError(f"{directory / MANIFEST}: run.command is {command!r}, which names no script; give load(script=…)")


def _spec(tensor: Mapping[str, Any]) -> str:
    """A declared tensor in the form of try_predict: "float32[64]"."""
    shape = ",".join(str(n) for n in tensor.get("shape") or ())
    return f"{tensor['dtype']}[{shape}]"


@contextlib.contextmanager
def _inside(directory: Path) -> Iterator[None]:
    """The working directory and the module path that a gateway's worker has."""
    before, path = os.getcwd(), list(sys.path)
    os.chdir(directory)
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        os.chdir(before)
        if sys.path[:1] == [str(directory)]:
            sys.path[:] = path


def _records(inputs: Any) -> Sequence[Any]:
    """Queries, those of a frame of pandas or polars as dicts."""
    if not hasattr(inputs, "columns"):
        return inputs  # type: ignore[no-any-return]
    return inputs.to_dicts() if hasattr(inputs, "to_dicts") else inputs.to_dict(orient="records")  # type: ignore[no-any-return]


def _number(value: Any, spec: str) -> Any:
    """A value in which None is NaN, if the tensor holds floating point."""
    if "float" not in spec or isinstance(value, (str, bytes)):
        return value
    if value is None:
        return float("nan")
    return [_number(item, spec) for item in value] if isinstance(value, (list, tuple)) else value


def _rows(outputs: Any, n: int) -> list[Any]:
    if isinstance(outputs, dict):
        return [{name: _plain(column[i]) for name, column in outputs.items()} for i in range(n)]
    return [_plain(outputs[i]) for i in range(n)]


def _plain(value: Any) -> Any:
    """A value without arrays."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value
