import xebec


def predict(batch):
    yield from batch[0].split()


xebec.serve(predict, text=True, concurrency=16)
