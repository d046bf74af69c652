"""A worker that the gateway has launched and that breaks the protocol: hostile.py HOW

Uses only the standard library. Afterwards it ignores SIGTERM and waits: the gateway has to kill it.
"""

import array
import os
import signal
import socket
import struct
import sys


def string(s):
    return struct.pack("<H", len(s)) + s.encode()


def frame(kind, payload):
    return struct.pack("<BBHI", kind, 0, 0, len(payload)) + payload


def hello(token, model):
    # Without a ring responses are frames on the socket.
    body = struct.pack("<HHI", 1, 0, 0) + string(token) + string(model) + string(os.environ["XEBEC_VERSION"]) + string("hostile/1") + b"\0"
    return frame(0x02, body)


def response(batch, generation, count, offset, length):
    return frame(0x11, struct.pack("<QIHHIIQQQQQ", batch, generation, 1, 0, count, 0, offset, length, 0, 0, 0))


def main():
    how = sys.argv[1]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    address = os.environ["XEBEC_SOCKET"]
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.connect("\0" + address[1:] if address.startswith("@") else address)
    token, model = os.environ["XEBEC_TOKEN"], os.environ["XEBEC_MODEL"]
    if how == "other-model":
        model = "good"
    s.sendall(hello(token, model))
    if how == "garbage-before-ready":
        s.sendall(b"\xff" * 1000)
    if how in ("garbage", "forged", "beyond"):
        fds = array.array("i")
        while len(fds) < 2:  # WELCOME, then SEGMENTS with the two descriptors
            data, ancillary, _, _ = s.recvmsg(65536, socket.CMSG_SPACE(2 * fds.itemsize))
            if not data:
                sys.exit("the gateway closed the connection before SEGMENTS")
            for _, _, received in ancillary:
                fds.frombytes(received[: len(received) - len(received) % fds.itemsize])
        s.sendall(frame(0x05, struct.pack("<I", 1)))
        if how == "garbage":
            s.sendall(bytes(range(2, 256)) * 64)
        if how == "forged":  # a response to a batch that was never sent
            s.sendall(response(7, 1, 1, 4096, 8))
        if how == "beyond":  # a response to a real batch that reaches beyond its grant
            buffer = b""
            while True:
                data = s.recv(65536)
                if not data:
                    sys.exit("the gateway closed the connection")
                buffer = (buffer + data).lstrip(b"\x01")
                if len(buffer) >= 72 and buffer[0] == 0x10:
                    break
            batch, generation = struct.unpack_from("<QI", buffer, 8)
            (offset,) = struct.unpack_from("<Q", buffer, 8 + 40)
            s.sendall(response(batch, generation, 1, offset, 1 << 62))
    while True:
        signal.pause()


main()
