"""Says how positive a text is, by its words."""

import xebec

GOOD, BAD = {"good", "great", "love", "nice"}, {"awful", "bad", "hate", "poor"}


def positive(text):
    if not text.strip():
        return xebec.Error("the text is empty")  # only its caller gets an error; the others of the batch are answered
    words = text.lower().split()
    good, bad = sum(word in GOOD for word in words), sum(word in BAD for word in words)
    return (1 + good) / (2 + good + bad)


def predict(batch):
    # batch: a list of n texts.
    return [positive(text) for text in batch]


xebec.serve(predict)
