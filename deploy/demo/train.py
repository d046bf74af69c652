"""Trains the demo's three digit classifiers and saves each beside its model.py.

The data are the handwritten digits bundled with scikit-learn: 1,797 images of 8 x 8 pixels, grey values 0 to 16. A fixed
seed selects a quarter that is held out; the printed accuracies are on that quarter. Everything is seeded, so the same
versions of the libraries give the same models.
"""

import json
from pathlib import Path

import joblib
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

MODELS = Path(__file__).parent / "models"
SEED = 1337

# The classifiers take raw pixel values, as callers send them. n_jobs=1: a replica is one process on one core; more replicas use more
# cores.
CLASSIFIERS = {
    "digits-svm": LinearSVC(C=0.01, random_state=SEED),
    "digits-forest": RandomForestClassifier(n_estimators=60, random_state=SEED, n_jobs=1),
    "digits-logreg": LogisticRegression(C=0.01, max_iter=1000, random_state=SEED),
}


def split():
    """Returns training pixels, held-out pixels, training labels and held-out labels. Pixels are float32, as the models declare."""
    pixels, labels = load_digits(return_X_y=True)
    return train_test_split(pixels.astype("float32"), labels, test_size=0.25, random_state=SEED, stratify=labels)


def main():
    train_pixels, test_pixels, train_labels, test_labels = split()
    print(f"    {len(train_labels)} digits to learn, {len(test_labels)} held out")
    for name, classifier in CLASSIFIERS.items():
        classifier.fit(train_pixels, train_labels)
        joblib.dump(classifier, MODELS / name / "digits.joblib", compress=3)
        print(f"    {name:14} {classifier.score(test_pixels, test_labels):.3f} of the held-out digits right")
    # A held-out digit for the commands that try.py prints.
    digit = {"label": int(test_labels[0]), "pixels": [int(p) for p in test_pixels[0]]}
    (MODELS / "digit.json").write_text(json.dumps(digit) + "\n")


if __name__ == "__main__":
    main()
