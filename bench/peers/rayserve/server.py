import os

import models
import numpy as np
from ray import serve
from starlette.responses import JSONResponse

CORES = int(os.environ["PEER_CORES"])


# A replica for each core: https://docs.ray.io/en/latest/serve/configure-serve-deployment.html. Batches:
# https://docs.ray.io/en/latest/serve/advanced-guides/dyn-req-batch.html.
@serve.deployment(
    num_replicas=CORES,
    max_ongoing_requests=256,
    ray_actor_options={"num_cpus": 1},
    health_check_period_s=3600,  # it is stopped while others are measured
    health_check_timeout_s=3600,
)
class Model:
    def __init__(self):
        _, _, self.model = models.chosen()

    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.001)
    async def predict(self, rows):
        return self.model(np.array(rows, dtype="float32")).tolist()

    async def __call__(self, request):
        # A response of its own has a length; a dict would be sent in chunks.
        return JSONResponse({"output": await self.predict((await request.json())["input"])})


app = Model.bind()
