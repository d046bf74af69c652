"""A classifier of texts, as sets.py keeps it."""


class LearnedTexts:
    """A classifier of texts: fit and predict take rows of UTF-8, uint8 (n, bytes), filled up with zeros; predict returns n labels, int64."""

    def __init__(self, classifier):
        self.classifier = classifier

    def fit(self, rows, labels):
        self.classifier.fit(texts(rows), labels)
        return self

    def predict(self, rows):
        return self.classifier.predict(texts(rows)).astype("int64")


def texts(rows):
    """The texts of rows of bytes. A character that was cut in the middle is dropped."""
    return [row.tobytes().rstrip(b"\0").decode(errors="ignore") for row in rows]
