"""The gateway's side of calls: functions that models call, and the lines on which they do."""

import array
import json
import socket
import threading

from gateway import render

from xebec import _protocol as p
from xebec._blocks import Block, codecs
from xebec._tensors import parse_spec


class Callee:
    """A function: its signature, and what it answers to (head, values) with outputs, or with a status and an error."""

    def __init__(self, inputs, outputs, answer):
        self.inputs = [parse_spec(name, spec) for name, spec in inputs.items()]
        self.outputs = [parse_spec(name, spec) for name, spec in outputs.items()]
        self.answer, self.digest = answer, "d1"

    def signature(self):
        specs = [[{"name": s.name, "dtype": s.dtype, "shape": s.shape} for s in specs] for specs in (self.inputs, self.outputs)]
        return json.dumps({"digest": self.digest, "inputs": specs[0], "outputs": specs[1]}).encode()

    def call(self, head, body):
        if head["xebec-signature"] != self.digest:
            return 409, json.dumps({"error": "changed", "code": "conflict"}).encode()
        n = int(head["xebec-queries"])
        values = Block(codecs(self.inputs, "input")).read(body, 0, len(body), n)
        answer = self.answer(head, values)
        if isinstance(answer, tuple) and isinstance(answer[0], int):
            return answer[0], json.dumps({"error": answer[1], "code": answer[2]}).encode()
        return 200, render(Block(codecs(self.outputs, "output")), answer, n)


class Lines:
    """The gateway's side of lines. It counts those that it gives, up to a limit."""

    def __init__(self, callees, limit=64):
        self.callees, self.limit, self.given, self.heads = callees, limit, 0, []
        self.ask, self.theirs = socket.socketpair()
        self.threads = [threading.Thread(target=self.give)]
        self.threads[0].start()

    def send(self, gw):
        gw.sock.sendmsg([p.frame(p.LINES)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self.theirs.fileno()]))])
        self.theirs.close()

    def give(self):
        while True:
            try:
                asked = self.ask.recv(1)
            except ConnectionResetError:
                return
            if not asked:
                return
            assert asked == b"\1"
            if self.given == self.limit:
                self.ask.sendall(b"\0")
                continue
            self.given += 1
            ours, theirs = socket.socketpair()
            socket.send_fds(self.ask, [b"\1"], [theirs.fileno()])
            theirs.close()
            self.threads.append(threading.Thread(target=self.serve, args=(ours,)))
            self.threads[-1].start()

    def serve(self, line):
        with line, line.makefile("rb") as lines:
            for first in lines:
                method, path, _ = first.decode().split(" ")
                head = {}
                for field in iter(lines.readline, b"\r\n"):
                    name, _, value = field.decode().partition(":")
                    head[name.lower()] = value.strip()
                body = lines.read(int(head.get("content-length", 0)))
                callee = self.callees.get(path.rpartition("/")[2])
                self.heads.append(head)
                if callee is None:
                    status, body = 404, b'{"error":"no function or model","code":"not_found"}'
                elif method == "GET":
                    status, body = 200, callee.signature()
                else:
                    status, body = callee.call(head, body)
                if status is None:
                    return
                line.sendall(f"HTTP/1.1 {status} Some\r\nContent-Length: {len(body)}\r\nX: y\r\n\r\n".encode())
                line.sendall(body)
