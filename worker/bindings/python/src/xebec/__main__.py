"""``python -m xebec``: prints the binding's version and the engine that it would use."""

import os

from . import __version__
from ._link import ring_module

if ring_module():
    engine = "rings (C extension)"
elif os.environ.get("XEBEC_PURE") == "1":
    engine = "socket (XEBEC_PURE=1 is set)"
else:
    engine = "socket (the C extension was not built)"
print(f"xebec {__version__}, descriptors through: {engine}")
