"""What the binding itself costs per batch: CPU time of a worker process whose predict does nothing.

    python bench/overhead.py [--rounds 20]

There are two loads. *busy* keeps 256 batches outstanding, so the worker rarely sleeps; this is the binding's own work.
*alone* keeps one batch outstanding, so each batch also pays for falling asleep and being woken. The number is the
worker's CPU time according to the kernel (/proc/PID/schedstat), divided by the batches. Another process on the same
core does not change it; a cold cache does.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from gateway import Gateway

from xebec import _protocol as p

ENTRIES = 256
CAP_BYTES = 4096

CASES = {
    "float32[64] → int64[], 1 query": ("float32[64]", "int64[]", 1, "import numpy\nanswer = numpy.zeros(1, 'int64')"),
    "float32[64] → int64[], 32 queries": ("float32[64]", "int64[]", 32, "import numpy\nanswer = numpy.zeros(32, 'int64')"),
    "float32[-1] → int64[], 32 queries": ("float32[-1]", "int64[]", 32, "import numpy\nanswer = numpy.zeros(32, 'int64')"),
    "bytes[] → bytes[], 1 query": ("bytes[]", "bytes[]", 1, "answer = [b'cat']"),
    "bytes[] → bytes[], 32 queries": ("bytes[]", "bytes[]", 32, "answer = [b'cat'] * 32"),
}


def cpu_nanos(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def column(spec: str, n: int):
    if spec == "bytes[]":
        return [b"x" * 64] * n
    return np.zeros((n, 64), "float32")


def measure(inputs: str, outputs: str, n: int, setup: str, pure: bool, rounds: int, tmp: Path) -> tuple[float, float]:
    source = f"import xebec\n{setup}\nxebec.serve(lambda batch: answer)\n"
    with Gateway(source, tmp, inputs, outputs, pure=pure, entries=ENTRIES, slab_bytes=16 << 20) as gw:
        block = gw.place(gw.block([column(inputs, n)], n))
        grant = gw.grant(CAP_BYTES)

        def load(depth: int, batches: int) -> float:
            before = cpu_nanos(gw.process.pid)
            for _ in range(batches // depth):
                for _ in range(depth):
                    gw.request(p.PREDICT, n, *block, *grant)
                for _ in range(depth):
                    assert gw.answer().status == p.OK
            return (cpu_nanos(gw.process.pid) - before) / batches / 1000

        load(ENTRIES, 2048)  # warm up
        busy = statistics.median(load(ENTRIES, 2048) for _ in range(rounds))
        alone = statistics.median(load(1, 256) for _ in range(rounds))
        gw.stop()
        return busy, alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    print(f"CPU of the worker, µs a batch, median of {rounds} rounds; Python {sys.version.split()[0]}, numpy {np.__version__}")
    print("| model | ring, busy | ring, alone | socket, busy | socket, alone |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as tmp:
        for name, (inputs, outputs, n, setup) in CASES.items():
            cells = [x for pure in (False, True) for x in measure(inputs, outputs, n, setup, pure, rounds, Path(tmp))]
            print(f"| {name} | " + " | ".join(f"{x:.1f}" for x in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
