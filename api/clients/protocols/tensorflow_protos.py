"""Lets `tensorflow-serving-api` be imported without TensorFlow, whose messages come from the package `tensorflow-protobuf`."""

import sys
import tempfile
from pathlib import Path

import grpc
from grpc_tools import protoc

# tensorflow-protobuf is older than the client, and lacks the file of codes: TensorFlow's are those of gRPC.
CODES = "xla/tsl/protobuf/error_codes.proto"
PUBLIC = "tensorflow/core/protobuf/error_codes.proto"


def provide():
    import tensorflow.core.protobuf

    folder = Path(tempfile.mkdtemp())
    values = "".join(f"  {code.name} = {code.value[0]};\n" for code in grpc.StatusCode)
    for name, text in ((CODES, f"package tensorflow.error;\nenum Code {{\n{values}}}\n"), (PUBLIC, f'package tensorflow.error.dummy;\nimport public "{CODES}";\n')):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(f'syntax = "proto3";\n{text}')
        assert protoc.main(["protoc", f"-I{folder}", f"--python_out={folder}", name]) == 0
    sys.path.append(str(folder))
    tensorflow.core.protobuf.__path__ = [str(folder / "tensorflow/core/protobuf"), *tensorflow.core.protobuf.__path__]
