import asyncio

import xebec


async def predict(batch):
    await asyncio.sleep(0.1)
    return batch * 2


xebec.serve(predict, concurrency=20)
