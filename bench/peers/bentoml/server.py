import os

import bentoml
import models
import numpy as np


# A worker for each core: https://docs.bentoml.com/en/latest/build-with-bentoml/parallelize-requests.html. Adaptive batches:
# https://docs.bentoml.com/en/latest/get-started/adaptive-batching.html. A request that takes longer than max_latency_ms is
# refused, so it is what Xebec's requests of closed loops allow.
@bentoml.service(
    workers=int(os.environ["PEER_CORES"]), logging={"access": {"enabled": False}}, metrics={"enabled": False}
)
class Model:
    def __init__(self):
        _, _, self.model = models.chosen()

    @bentoml.api(batchable=True, max_batch_size=64, max_latency_ms=10_000)
    def predict(self, rows: np.ndarray) -> np.ndarray:
        return self.model(rows.astype("float32"))
