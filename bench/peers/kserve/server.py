import models
import numpy as np
from kserve import InferOutput, InferResponse, Model, ModelServer
from kserve.protocol.rest.multiprocess.server import RESTServerProcess
from kserve.utils.utils import generate_uuid

# The five seconds after which a process counts as dead are too few for the imports on a busy machine.
RESTServerProcess.is_alive.__defaults__ = (60,)


class Served(Model):
    """The model is loaded by the process that evaluates it, because not every model can be sent to another process."""

    model = None

    def __init__(self, name):
        super().__init__(name)
        self.ready = True

    # `async`: a model of this size answers sooner than a thread pool.
    async def predict(self, payload, headers=None, response_headers=None):
        if self.model is None:
            _, _, self.model = models.chosen()
        outputs = np.asarray(self.model(payload.inputs[0].as_numpy().astype("float32", copy=False)))
        tensor = InferOutput("output", list(outputs.shape), "INT64")
        tensor.set_data_from_numpy(outputs, binary_data=False)
        return InferResponse(payload.id or generate_uuid(), self.name, [tensor])


if __name__ == "__main__":
    ModelServer().start([Served(models.name())])
