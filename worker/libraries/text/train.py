"""Trains on a few sentences that are made here; writes model.joblib."""

import random

import joblib
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

GOOD = "splendid warm kind bright excellent café délicieux 素晴らしい".split()
BAD = "dreadful cold rude dull awful détestable médiocre 最悪".split()
OTHER = "the room was and breakfast staff a bit view of night two".split()


def sentences(seed, n):
    """Returns n sentences and their classes."""
    draw = random.Random(seed)
    classes = [draw.choice(["pos", "neg"]) for _ in range(n)]
    return [" ".join(draw.choices(OTHER, k=5) + [draw.choice(GOOD if c == "pos" else BAD)]) for c in classes], classes


if __name__ == "__main__":
    joblib.dump(make_pipeline(TfidfVectorizer(token_pattern=r"\w+"), LogisticRegression()).fit(*sentences(7, 500)), "model.joblib")
