"""Xebec's Python binding: it turns a function into a model behind a Xebec gateway.

    import xebec
    xebec.serve(lambda batch: batch.sum(axis=1))

Model authors make one call. Inputs arrive without a copy, outputs that do not fit fail with a clear error, and no
exception of predict ends the process. The binding never unpickles, prints only what went wrong with the gateway, starts
no thread unless the model asks for concurrency, and imports numpy only for a model with a numeric tensor.

Where to read next: ``_serve`` is the public API, ``_worker`` the state machine of ``api/spec/worker.md``. ``_link``
and ``_ring.c`` transport descriptors. ``_blocks`` lays out tensors in shared memory, with the codecs ``_arrays``,
``_views`` and ``_bytes``. ``_model`` turns values into arguments and results into values, ``_frames`` into frames.
``_protocol`` encodes frames and descriptors. ``_concurrent`` runs predictions beside each other, ``_calls`` calls
other functions of the gateway, ``_streams`` those whose answers are streams. ``_zygote`` is separate: the process
that workers are forked from. ``_dev`` is its counterpart for authors, behind ``xebec dev``. ``policy`` serves selection
policies: models that call others.
"""

from ._calls import CallError, acall, call
from ._frames import frame
from ._model import END, Call, Last
from ._serve import serve, try_predict
from ._tensors import BadOutput, Error
from ._worker import VERSION as __version__

__all__ = ["END", "BadOutput", "Call", "CallError", "Error", "Last", "__version__", "acall", "call", "frame", "serve", "try_predict"]
