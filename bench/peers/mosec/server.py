import os

import models
import numpy as np
from mosec import Server, Worker


class Model(Worker):
    def __init__(self):
        _, _, self.predict = models.chosen()

    def forward(self, data):
        rows = np.array([query["input"] for query in data], dtype="float32")
        return [{"output": output} for output in self.predict(rows).tolist()]


if __name__ == "__main__":
    server = Server()
    # A worker for each core, and dynamic batches: https://mosecorg.github.io/mosec/reference/interface.html. One millisecond
    # is the shortest wait that there is.
    server.append_worker(Model, num=int(os.environ["PEER_CORES"]), max_batch_size=64, max_wait_time=1)
    server.run()
