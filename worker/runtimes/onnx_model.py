"""Serves an ONNX graph with ONNX Runtime.

    python model.py model.onnx               serves it; the gateway runs this
    python model.py model.onnx --describe    prints its inputs and outputs as JSON; `xebec deploy model.onnx` runs this

The first dimension of every input and output is the batch. If the graph fixes it to 1, queries are evaluated one by one.
Inputs of varying shape arrive as a list of arrays: those of one shape are evaluated together.
"""

import argparse
import json
import os
import sys


def missing(e, *requirements):
    """Ends the program: a library is not there. `xebec deploy` reads the requirements."""
    if "--describe" in sys.argv:
        print(json.dumps({"missing": e.name, "requirements": requirements}))
        sys.exit()
    sys.exit(f"{e}: {sys.executable} needs {' and '.join(requirements)}. Install them there, or name them in requirements.txt beside the model")


try:
    import numpy as np
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
except ImportError as e:
    missing(e, "onnxruntime", "numpy")

DTYPES = {
    "tensor(bool)": "bool",
    "tensor(uint8)": "uint8",
    "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32",
    "tensor(uint64)": "uint64",
    "tensor(int8)": "int8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(float16)": "float16",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(string)": "string",
}
PROBE = 2  # queries of the batch that finds out the shapes of the outputs


def dimensions(shape):
    """The dimensions of one query: without the batch, and -1 for those that vary."""
    return [d if isinstance(d, int) and d > 0 else -1 for d in shape[1:]]


def plain(output):
    """An output as one array: of classes with their scores (ZipMap), the scores in the order of the classes."""
    if isinstance(output, list) and output and isinstance(output[0], dict):
        return np.array([list(scores.values()) for scores in output], np.float32)
    return np.asarray(output)


class Graph:
    def __init__(self, path):
        options = onnxruntime.SessionOptions()
        for name in ("OMP_NUM_THREADS",):
            if os.environ.get(name, "").isdecimal():
                options.intra_op_num_threads = int(os.environ[name])
        providers = [p for p in ("CUDAExecutionProvider", "CPUExecutionProvider") if p in onnxruntime.get_available_providers()]
        self.session = onnxruntime.InferenceSession(path, options, providers=providers)
        self.inputs = self.session.get_inputs()
        self.outputs = self.session.get_outputs()
        for i in self.inputs:
            if i.type not in DTYPES:
                sys.exit(f"{path}: the input {i.name!r} is a {i.type}: expected a tensor of numbers or strings")
            if not i.shape or isinstance(i.shape[0], int) and i.shape[0] > 1:
                sys.exit(
                    f"{path}: the input {i.name!r} has the shape {i.shape}: expected a first dimension that is the batch; "
                    "export the graph with a dynamic first dimension (dynamic_axes of torch.onnx.export, [None, …] of skl2onnx)"
                )
        self.single = any(i.shape[0] == 1 for i in self.inputs)

    def run(self, feed):
        return [plain(output) for output in self.session.run(None, feed)]

    def describe(self):
        n = 1 if self.single else PROBE
        inputs, feed, fixed = [], {}, True
        for i in self.inputs:
            shape = dimensions(i.shape)
            fixed = fixed and -1 not in shape
            inputs.append({"name": i.name, "dtype": DTYPES[i.type], "shape": shape})
            whole = [n] + [8 if d < 0 else d for d in shape]
            feed[i.name] = np.full(whole, "", object) if DTYPES[i.type] == "string" else np.zeros(whole, DTYPES[i.type])
        try:
            probed = self.run(feed)
        except Exception as e:  # zeros may be no input of this graph; what it declares must do
            print(f"the graph refuses zeros, so the shapes of its outputs are as it declares them: {e}", file=sys.stderr)
            probed = [None] * len(self.outputs)
        outputs = []
        for o, found in zip(self.outputs, probed):
            if found is None and o.type not in DTYPES:
                sys.exit(f"the output {o.name!r} is a {o.type}, and its shape cannot be found out: expected a tensor of numbers or strings")
            if found is not None and (found.ndim == 0 or found.shape[0] != n):
                sys.exit(f"the output {o.name!r} of a batch of {n} has the shape {found.shape}: expected a first dimension that is the batch")
            text = found.dtype.kind in "OU" if found is not None else DTYPES[o.type] == "string"
            dtype = "string" if text else str(found.dtype) if found is not None else DTYPES[o.type]
            shape = list(found.shape[1:]) if found is not None and fixed else dimensions(o.shape)
            outputs.append({"name": o.name, "dtype": dtype, "shape": shape})
        return {"inputs": inputs, "outputs": outputs}

    def predict(self, batch):
        columns = batch if isinstance(batch, dict) else {self.inputs[0].name: batch}
        columns = {i.name: self.column(i, columns[i.name]) for i in self.inputs}
        n = len(next(iter(columns.values())))
        if not self.single and all(isinstance(c, np.ndarray) for c in columns.values()):
            return self.named(self.run(columns))
        groups = {}  # queries that can be evaluated together
        for k in range(n):
            shapes = tuple(np.shape(c[k]) for c in columns.values())
            groups.setdefault(k if self.single else shapes, []).append(k)
        results = [[None] * n for _ in self.outputs]
        for queries in groups.values():
            feed = {name: np.stack([c[k] for k in queries]) for name, c in columns.items()}
            for result, output in zip(results, self.run(feed)):
                for k, value in zip(queries, output):
                    result[k] = value
        return self.named(results)

    @staticmethod
    def named(outputs):
        """The outputs as predict returns them: one alone, several as a tuple in their order."""
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    @staticmethod
    def column(declared, values):
        if DTYPES[declared.type] == "string":
            values = [np.array(v, object) for v in values]
            return np.stack(values) if len({v.shape for v in values}) == 1 else values
        return values


def refusing(predict, *refusals):
    """Predict, with the exceptions by which the library refuses values as errors of the caller, who gets the first line of their text."""
    import xebec

    def refuse(batch):
        try:
            return predict(batch)
        except refusals as e:
            raise xebec.Error((str(e).strip() or type(e).__name__).splitlines()[0]) from e

    return refuse


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--describe", action="store_true")
    arguments = parser.parse_args()
    graph = Graph(arguments.model)
    if arguments.describe:
        print(json.dumps(graph.describe()))
    else:
        import xebec

        # An index out of range, or varying shapes that do not go together, is an InvalidArgument.
        xebec.serve(refusing(graph.predict, InvalidArgument), text=True)
