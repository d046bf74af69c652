import models
import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel

_, _, predict = models.chosen()
app = FastAPI()


class Query(BaseModel):
    input: list[float]


class Answer(BaseModel):
    output: int


# `async`, because a model of this size answers sooner than FastAPI's thread pool does (https://fastapi.tiangolo.com/async/).
@app.post("/predict")
async def ask(query: Query) -> Answer:
    return Answer(output=int(predict(np.array([query.input], dtype="float32"))[0]))


@app.get("/ready")
async def ready() -> dict[str, bool]:
    return {"ready": True}
