"""What serve refuses. test_types.py runs mypy --strict on it: it finds an error in each line that ends in "# wrong", and no other."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import xebec

Floats = npt.NDArray[np.float32]


def predict(batch: Floats) -> Floats:
    return batch


def nothing() -> Floats:
    return np.zeros(1, np.float32)


def two(batch: Floats, contexts: list[str]) -> Floats:
    return batch


def number(batch: Floats, contexts: int) -> Floats:
    return batch


def keyword(batch: Floats, *, contexts: list[str]) -> Floats:
    return batch


def forgets(batch: Floats) -> None:
    batch.sum()


def single(batch: list[str]) -> str:
    return batch[0]


def total(batch: Floats) -> float:
    return float(batch.sum())


async def later(batch: Floats) -> int:
    return len(batch)


def nones(batch: list[str]) -> Iterator[None]:
    yield None


async def objects(batch: list[str]) -> AsyncIterator[object]:
    yield object()


def unsure(batch: Floats) -> list[float]:
    return [1.0]


def learn(batch: Floats) -> None: ...


def step(states: list[str]) -> int:
    return len(states)


def _1() -> None:
    xebec.serve(1)  # wrong


def _2() -> None:
    xebec.serve(nothing)  # wrong


def _3() -> None:
    xebec.serve(two)  # wrong


def _4() -> None:
    xebec.serve(predict, contexts=True)  # wrong


def _5() -> None:
    xebec.serve(number, contexts=True)  # wrong


def _6() -> None:
    xebec.serve(keyword)  # wrong


def _7() -> None:
    xebec.serve(two, parameters=True, contexts=True)  # wrong


def _8() -> None:
    xebec.serve(forgets)  # wrong


def _9() -> None:
    xebec.serve(single)  # wrong


def _10() -> None:
    xebec.serve(total)  # wrong


def _11() -> None:
    xebec.serve(later)  # wrong


def _12() -> None:
    xebec.serve(nones)  # wrong


def _13() -> None:
    xebec.serve(objects)  # wrong


def _14() -> None:
    xebec.serve(unsure, confidences=True)  # wrong


def _15() -> None:
    xebec.serve(predict, feedback=learn)  # wrong


def _16() -> None:
    xebec.serve(predict, accuracy=lambda: "high")  # wrong


def _17() -> None:
    xebec.serve(predict, concurrency="4")  # wrong


def _18() -> None:
    xebec.serve(predict, threads=4)  # wrong


def _19(states: Any) -> None:
    xebec.serve(predict, step=step)  # wrong


def _20() -> None:
    xebec.serve(lambda batch: None)  # wrong


def _21() -> None:
    xebec.serve(lambda batch, more: batch)  # wrong


print(xebec.try_predict(total, [1.0], inputs="float32[]", outputs="float32[]"))  # wrong
