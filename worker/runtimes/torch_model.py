"""Serves a program of PyTorch: TorchScript (torch.jit.save), torch.export (torch.export.save), or a pickled module.

    python model.py model.pt               serves it; the gateway runs this
    python model.py model.pt --describe    prints its inputs and outputs as JSON; `xebec deploy model.pt` runs this

The first dimension of every input and output is the batch. A TorchScript program does not say the shapes of its inputs:
--input says them. Nothing but tensors is unpickled of it and of an exported program. A module that torch.save has pickled is loaded with
--allow-pickle only, because that runs whatever code its writer put in.
"""

import argparse
import inspect
import json
import os
import sys

if "--allow-pickle" not in sys.argv:
    # torch.export.load unpickles what an archive says is a pickle; this makes every load one of tensors alone.
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"


def missing(e, *requirements):
    """Ends the program: a library is not there. `xebec deploy` reads the requirements."""
    if "--describe" in sys.argv:
        print(json.dumps({"missing": e.name, "requirements": requirements}))
        sys.exit()
    sys.exit(f"{e}: {sys.executable} needs {' and '.join(requirements)}. Install them there, or name them in requirements.txt beside the model")


try:
    import numpy as np
    import torch
except ImportError as e:
    missing(e, "torch", "numpy")

DTYPES = {
    torch.bool: "bool",
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.float32: "float32",
    torch.float64: "float64",
}
PROBE = 2  # queries of the batch that finds out the shapes of the outputs


class Served:
    def __init__(self, path, form, pickle):
        self.declared, self.single = None, False
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        if form == "exported":
            program = torch.export.load(path)
            self.module = program.module()
            self.declared = self.inputs_of(path, program)
        elif form == "torchscript":
            self.module = torch.jit.load(path, map_location=self.device)
            self.module.eval()
        else:
            self.module = self.unpickled(path, pickle)
            self.module.eval()
        if self.device != "cpu":
            self.module.to(self.device)

    def inputs_of(self, path, program):
        """What an exported program says of its inputs."""
        names, inputs = program.graph_signature.user_inputs, []
        values = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
        for name in names:
            value = values.get(name)
            if not isinstance(value, torch.Tensor):
                sys.exit(f"{path}: the input {name!r} is no tensor: export a program that takes tensors only")
            shape = [d if isinstance(d, int) else -1 for d in value.shape]
            if not shape or shape[0] > 1:
                sys.exit(f"{path}: the input {name!r} has the shape {shape}: export it with a dynamic first dimension, the batch (dynamic_shapes of torch.export.export)")
            self.single = self.single or shape[0] == 1
            inputs.append({"name": name, "dtype": DTYPES[value.dtype], "shape": shape[1:]})
        return inputs

    def unpickled(self, path, pickle):
        """A pickled module. Tensors alone, which need no pickle, are no program."""
        if not pickle:
            try:
                torch.load(path, map_location="cpu", weights_only=True)
            except Exception as e:
                sys.exit(f"{path}: is a pickle with more than tensors in it, and loading it runs the code in it: give --allow-pickle if you trust its writer, or save "
                         f"the program with torch.export.save ({str(e).splitlines()[0]})")  # fmt: skip
            sys.exit(f"{path}: has tensors and no program: save the program with torch.export.save, or torch.jit.save")
        module = torch.load(path, map_location="cpu", weights_only=False)
        if not isinstance(module, torch.nn.Module):
            sys.exit(f"{path}: holds a {type(module).__name__}: expected a module; save the program with torch.export.save, or torch.jit.save")
        return module

    def evaluate(self, arrays):
        with torch.inference_mode():
            answer = self.module(*(torch.from_numpy(np.array(a)).to(self.device) for a in arrays))  # a copy: torch wants to write
        if isinstance(answer, dict):
            return {str(name): tensor.cpu().numpy() for name, tensor in answer.items()}
        answer = answer if isinstance(answer, (tuple, list)) else [answer]
        names = ["output"] if len(answer) == 1 else [f"output_{i}" for i in range(len(answer))]
        return {name: tensor.cpu().numpy() for name, tensor in zip(names, answer)}

    def describe(self, declared):
        inputs = self.declared or declared
        if not inputs:
            names = [p for p in inspect.signature(self.module.forward).parameters] if not isinstance(self.module, torch.jit.ScriptModule) else []
            names = names or [a.name for a in self.module.forward.schema.arguments[1:]]
            sys.exit(f"the program does not say the shapes of its inputs ({', '.join(names)}): say them in this order, without the batch, such as --input 'float32[3,224,224]'")
        n, fixed = 1 if self.single else PROBE, all(-1 not in i["shape"] for i in inputs)
        try:
            answer = self.evaluate([np.zeros([n] + [8 if d < 0 else d for d in i["shape"]], i["dtype"]) for i in inputs])
        except Exception as e:
            sys.exit(f"the program fails for zeros of its inputs {inputs}: {e}")
        outputs = []
        for name, array in answer.items():
            if array.ndim == 0 or array.shape[0] != n:
                sys.exit(f"the output {name!r} of a batch of {n} has the shape {array.shape}: expected a first dimension that is the batch")
            shape = list(array.shape[1:])
            outputs.append({"name": name, "dtype": str(array.dtype), "shape": shape if fixed else [-1] * len(shape)})
        return {"inputs": inputs, "outputs": outputs}

    def predict(self, batch):
        columns = list(batch.values()) if isinstance(batch, dict) else [batch]
        n = len(columns[0])
        if not self.single and all(isinstance(c, np.ndarray) for c in columns):
            return self.named(self.evaluate(columns))
        groups = {}  # queries that can be evaluated together
        for k in range(n):
            shapes = tuple(np.shape(c[k]) for c in columns)
            groups.setdefault(k if self.single else shapes, []).append(k)
        results = {}
        for queries in groups.values():
            for name, output in self.evaluate([np.stack([c[k] for k in queries]) for c in columns]).items():
                column = results.setdefault(name, [None] * n)
                for k, value in zip(queries, output):
                    column[k] = value
        return self.named(results)

    @staticmethod
    def named(outputs):
        return outputs["output"] if list(outputs) == ["output"] else outputs


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
    parser.add_argument("--form", choices=["torchscript", "exported", "pickle"], default="torchscript")
    parser.add_argument("--allow-pickle", action="store_true")
    parser.add_argument("--describe", action="store_true")
    parser.add_argument("--input", type=json.loads, action="append", default=[])
    arguments = parser.parse_args()
    served = Served(arguments.model, arguments.form, arguments.allow_pickle)
    if arguments.describe:
        print(json.dumps(served.describe(arguments.input)))
    else:
        import xebec

        xebec.serve(refusing(served.predict, IndexError, ValueError))  # an index that an embedding does not have
