import xebec


def predict(batch):
    raise ValueError("this model fails on every batch")


xebec.serve(predict)
