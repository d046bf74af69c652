"""A container that waits with imported modules: ``python -m xebec._warm MODULE…`` imports the modules once and then becomes the
worker that the gateway asks for. A replica that would take seconds to import its libraries starts in milliseconds.

The gateway mounts one socket (SOCK_SEQPACKET) at XEBEC_SOCKET. Every message is one JSON object. This process connects, imports, and
sends {"ready": true}, or {"error": why} and exits. Then the gateway sends, once,

    {"argv": […], "env": […]}      with a descriptor of the socket of the worker protocol (O_PATH)

and gets {"started": true}. argv and env are base64, as in :mod:`xebec._zygote`, and mean what they mean there. The process that has
imported is the one that serves: nothing is forked, so the modules may start threads and open files, and no replica shares anything
with another one. It exits at the end of the socket.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys

from ._zygote import EXIT_NOT_LAUNCHED, MAX_REQUEST_BYTES, MAX_TEXT, Unfit, load, run


def main() -> None:
    path = os.environ.get("XEBEC_SOCKET")
    if not path:
        print("xebec: a warm container is started by the gateway, for models whose xebec.yaml has `preload`", file=sys.stderr)
        raise SystemExit(EXIT_NOT_LAUNCHED)
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the model's directory, which run puts there
    first = dict(os.environb)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(path)
    try:
        load(sys.argv[1:])
    except Unfit as e:
        sock.send(json.dumps({"error": str(e)[:MAX_TEXT]}).encode())
        raise SystemExit(1) from None
    sock.send(b'{"ready": true}')
    data, fds, _, _ = socket.recv_fds(sock, MAX_REQUEST_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
    if not data:
        raise SystemExit(0)
    fields = json.loads(data)
    argv = [os.fsdecode(base64.b64decode(word)) for word in fields["argv"]]
    env = dict(base64.b64decode(entry).partition(b"=")[::2] for entry in fields["env"])
    for name, value in env.items():
        if first.get(name) != value:  # otherwise keep what the imports have set
            os.environb[name] = value
    os.environ["XEBEC_SOCKET"] = f"/proc/self/fd/{fds[0]}"
    sock.send(b'{"started": true}')
    sock.close()
    run(argv)


if __name__ == "__main__":
    main()
