"""Says which of three kinds of iris a flower is."""

import joblib
import xebec

classifier = joblib.load("model.joblib")


def predict(batch):
    # batch: a float32 array of shape (n, 4): length and width of sepals and petals in cm.
    return classifier.predict(batch).tolist()


xebec.serve(predict)
