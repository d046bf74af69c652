import os

import litserve
import models
import numpy as np


class Model(litserve.LitAPI):
    def setup(self, device):
        _, _, self.model = models.chosen()

    def decode_request(self, request):
        return request["input"]

    def batch(self, inputs):
        return np.array(inputs, dtype="float32")

    def predict(self, rows):
        return self.model(rows).tolist()

    def unbatch(self, outputs):
        return outputs

    def encode_response(self, output):
        return {"output": output}


if __name__ == "__main__":
    cores = int(os.environ["PEER_CORES"])
    # Batches: https://lightning.ai/docs/litserve/features/batching. Workers, and the queue that is meant for many requests:
    # https://lightning.ai/docs/litserve/api-reference/litserver.
    server = litserve.LitServer(
        Model(max_batch_size=64, batch_timeout=0.001), accelerator="cpu", workers_per_device=cores, fast_queue=True
    )
    server.run(
        host="127.0.0.1",
        port=int(os.environ["PEER_PORT"]),
        num_api_servers=cores,
        log_level="warning",
        generate_client_file=False,
        access_log=False,
    )
