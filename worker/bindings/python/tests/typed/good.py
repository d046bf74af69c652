"""What serve accepts. test_types.py runs mypy --strict on it: it finds nothing."""

import functools
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Optional, TypedDict, Union

import numpy as np
import numpy.typing as npt

import xebec

Floats = npt.NDArray[np.float32]


class Classifier:
    def predict(self, batch: Floats) -> npt.NDArray[np.int64]:
        return batch.astype(np.int64)

    async def later(self, batch: Floats) -> Floats:
        return batch

    def __call__(self, batch: Floats) -> Floats:
        return batch


class Outputs(TypedDict):
    label: list[str]
    score: Floats


def upper(batch: list[str]) -> list[str]:
    return [text.upper() for text in batch]


def some(batch: list[str]) -> list[Union[str, xebec.Error]]:
    return [text or xebec.Error("empty") for text in batch]


def named(batch: dict[str, Any]) -> dict[str, Floats]:
    return {"y": batch["x"]}


def typed(batch: dict[str, Any]) -> Outputs:
    return {"label": batch["text"], "score": batch["x"]}


def pair(batch: Floats) -> tuple[Floats, list[str]]:
    return batch, ["a"] * len(batch)


def sure(batch: Floats) -> tuple[Floats, Floats]:
    return batch, batch.max(axis=1)


def perhaps(batch: Floats) -> tuple[Floats, Optional[list[float]]]:
    return batch, None


async def later(batch: list[bytes]) -> list[bytes]:
    return batch


def words(batch: list[str]) -> Iterator[str]:
    yield from batch[0].split()


async def tokens(batch: list[str]) -> AsyncIterator[Floats]:
    yield np.zeros(3, np.float32)


def everything(
    batch: Floats, contexts: Sequence[str], parameters: Sequence[Mapping[str, object]], calls: Sequence[xebec.Call]
) -> Floats:
    return batch


def scaled(factor: float, batch: Floats) -> Floats:
    return batch.astype(np.float32)


def with_parameters(batch: Floats, parameters: list[dict[str, Any]]) -> list[float]:
    return [float(p["k"]) for p in parameters]


def learn(batch: Floats, labels: list[Any]) -> None: ...


def learn_for(batch: Floats, labels: list[Any], contexts: list[str]) -> int:
    return len(labels)


def begin(batch: list[str]) -> list[str]:
    return batch[0].split()


def step(states: list[list[str]]) -> list[object]:
    return [state.pop() if state else xebec.END for state in states]


@xebec.frame
def framed(batch: Any) -> Any:
    return batch


def each() -> None:
    """Every call is in a function of its own, because serve does not return."""

    def _(model: Any) -> None:
        xebec.serve(lambda batch: model.predict(batch))

    def _1() -> None:
        xebec.serve(lambda batch: batch.sum(axis=1))

    def _2() -> None:
        xebec.serve(Classifier().predict, concurrency=4)

    def _3() -> None:
        xebec.serve(Classifier().later)

    def _4() -> None:
        xebec.serve(Classifier())

    def _5() -> None:
        xebec.serve(upper, text=True, feedback=learn, accuracy=lambda: 0.5)

    def _6() -> None:
        xebec.serve(some)

    def _7() -> None:
        xebec.serve(named)

    def _8() -> None:
        xebec.serve(typed)

    def _9() -> None:
        xebec.serve(pair)

    def _10() -> None:
        xebec.serve(sure, confidences=True)

    def _11() -> None:
        xebec.serve(perhaps, confidences=True)

    def _12() -> None:
        xebec.serve(later, concurrency=8)

    def _13() -> None:
        xebec.serve(words)

    def _14() -> None:
        xebec.serve(tokens)

    def _15() -> None:
        xebec.serve(everything, contexts=True, parameters=True, calls=True, text=True, feedback=learn_for)

    def _16() -> None:
        xebec.serve(with_parameters, parameters=True)

    def _17() -> None:
        xebec.serve(functools.partial(scaled, 2.0))

    def _18() -> None:
        xebec.serve(begin, step=step, concurrency=10)

    def _19() -> None:
        xebec.serve(framed)

    def _20() -> None:
        xebec.serve(lambda batch, contexts: (batch, [0.5] * len(contexts)), contexts=True, confidences=True)


print(xebec.try_predict(upper, ["a"], inputs="string[]", outputs="string[]"))
print(xebec.try_predict(later, [b"a"], inputs="bytes[]", outputs="bytes[]"))
print(xebec.try_predict(words, ["a b"], inputs="string[]", outputs="string[]"))
