import models
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Model(MLModel):
    async def load(self):
        _, _, self.model = models.chosen()
        return True

    async def predict(self, payload):
        rows = NumpyCodec.decode_input(payload.inputs[0])
        outputs = NumpyCodec.encode_output("output", self.model(rows.astype("float32", copy=False)))
        return InferenceResponse(model_name=self.name, outputs=[outputs])
