"""Xebec's Python binding: it makes a function the model that a Xebec gateway serves.

    import xebec
    xebec.serve(lambda batch: batch.sum(axis=1))

It promises model authors one call, inputs without a copy, an error in plain words when an output does not fit, and that
nothing which predict raises ends the process. It never unpickles, never prints but what went wrong with the gateway, starts
no thread, and imports numpy only for a model with a numeric tensor.

Where to read next: ``_serve`` (what an author calls), ``_worker`` (the state machine of ``api/spec/worker.md``), ``_link`` and
``_ring.c`` (how descriptors come and go), ``_blocks`` (how tensors lie in shared memory; ``_arrays``, ``_views`` and ``_bytes``
are its codecs), ``_model`` (values to arguments, results to values), ``_protocol`` (bytes of frames and descriptors). ``_zygote``
stands apart: the process that workers are forked from.
"""

from ._serve import serve, try_predict
from ._tensors import BadOutput
from ._worker import VERSION as __version__

__all__ = ["BadOutput", "__version__", "serve", "try_predict"]
