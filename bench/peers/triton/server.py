import os
import pathlib

import models
import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

name, features, predict = models.chosen()


@batch
def infer(input):
    return {"output": predict(input).reshape(-1, 1)}


if __name__ == "__main__":
    config = TritonConfig(
        http_address="127.0.0.1",
        http_port=int(os.environ["PEER_PORT"]),
        grpc_address="127.0.0.1",
        grpc_port=int(os.environ["PEER_GRPC_PORT"]),
        metrics_address="127.0.0.1",
        metrics_port=int(os.environ["PEER_METRICS_PORT"]),
        allow_gpu_metrics=False,
        log_verbose=0,
    )
    with Triton(config=config, workspace=pathlib.Path.cwd() / "triton") as triton:
        # The dynamic batcher without a delay is where its documentation begins, and a delay only makes these models slower:
        # https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/batcher.html.
        triton.bind(
            model_name=name,
            infer_func=infer,
            inputs=[Tensor(name="input", dtype=np.float32, shape=(features,))],
            outputs=[Tensor(name="output", dtype=np.int64, shape=(1,))],
            config=ModelConfig(max_batch_size=64, batcher=DynamicBatcher(max_queue_delay_microseconds=0)),
            strict=False,
        )
        triton.serve()
