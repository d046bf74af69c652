"""What serve and try_predict accept, for type checkers. Nothing imports it when a model runs.

A checker compares how many arguments predict takes with the options that ask for them, and what it returns with what can
be an output. The batch itself is Any: its type follows from the manifest, which a checker does not read. Annotate yours
with what you receive, for example ``numpy.ndarray``, ``list[str]`` or ``dict[str, Any]``.
"""

from __future__ import annotations

import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Literal, Optional, Protocol, SupportsFloat, TypeVar, Union

from ._model import Call, End, Last
from ._tensors import Error

Yes = Literal[True]
No = Literal[False]


class Array(Protocol):
    """An array, tensor, series or frame: numpy, torch, jax, pandas, polars and pyarrow define this method."""

    def __array__(self) -> Any: ...


# The outputs of a batch: one column, or several by name or in order.
Outputs = Union[Array, list[Any], tuple[Any, ...], Mapping[str, object], memoryview, "array.array[Any]"]
# One output of a stream: a batch of one, or a single value.
Output = Union[Outputs, str, bytes, bool, int, float, Error]
Confidences = Union[Array, list[Any], tuple[Any, ...], None]
Confidence = Union[Confidences, float]

R = TypeVar("R")
Whenever = Union[R, Awaitable[R]]
Results = Union[Whenever[Outputs], Iterator[Output], AsyncIterator[Output]]
# The same, with confidences=True.
SureResults = Union[
    Whenever[tuple[Outputs, Confidences]], Iterator[tuple[Output, Confidence]], AsyncIterator[tuple[Output, Confidence]]
]

# predict, by the options that give it arguments: C is contexts, P parameters, Q calls.
Contexts = list[Any]
Parameters = list[dict[str, Any]]
Calls = list[Call]
Predict = Callable[[Any], R]
PredictC = Callable[[Any, Contexts], R]
PredictP = Callable[[Any, Parameters], R]
PredictQ = Callable[[Any, Calls], R]
PredictCP = Callable[[Any, Contexts, Parameters], R]
PredictCQ = Callable[[Any, Contexts, Calls], R]
PredictPQ = Callable[[Any, Parameters, Calls], R]
PredictCPQ = Callable[[Any, Contexts, Parameters, Calls], R]

Feedback = Optional[Callable[[Any, list[Any]], object]]
FeedbackC = Optional[Callable[[Any, list[Any], Contexts], object]]
Accuracy = Optional[Callable[[], SupportsFloat]]

StepOutput = Union[Output, Last, End, None]
Step = Callable[[list[Any]], Union[list[Any], tuple[StepOutput, ...], Iterator[StepOutput], Array]]
