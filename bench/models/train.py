"""Trains the models of bench/cmd/figures and saves each beside its model.py; does nothing when they are up to date.

The data are scikit-learn's bundled handwritten digits, 1,797 images of 8 x 8 pixels, enlarged to 28 x 28 by bilinear
interpolation: as many features as MNIST's images have, which the paper's models were trained on, though not as much
content. A quarter is held out; the rest is learned five times over, as it is and shifted by one pixel to each side, so
that the models are of a serious size. Everything is seeded: the same versions of the libraries give the same models.

data/queries.f32 holds the held-out images, float32, 784 a row. data/<model>.i64 holds what the model says of each, and
data/<model>.sizes a sentence about it. The benchmark sends the former, checks every answer against the latter, and
prints the last.
"""

import hashlib
from pathlib import Path

import joblib
import numpy as np
import sklearn
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC, LinearSVC

HERE = Path(__file__).parent
DATA = HERE / "data"
SEED = 1337
SIDE = 28

# n_jobs=1: a replica is one process on one core. C is what the held-out quarter likes for the linear ones; the sizes of
# forest and kernel SVM are the library's defaults.
CLASSIFIERS = {
    "linear-svm": LinearSVC(C=0.01, random_state=SEED),
    "kernel-svm": SVC(kernel="rbf", random_state=SEED),
    "forest": RandomForestClassifier(n_estimators=100, random_state=SEED, n_jobs=1),
    "logistic": LogisticRegression(C=0.01, max_iter=1000, random_state=SEED),
}


def enlarge(pixels):
    """(n, 64) grey values from 0 to 16 to (n, 784) from 0 to 1, bilinear, with the centres of the outer pixels aligned."""
    images = pixels.reshape(-1, 8, 8)
    at = np.clip((np.arange(SIDE) + 0.5) * 8 / SIDE - 0.5, 0, 7)
    low = np.minimum(at.astype(int), 6)
    part = at - low
    rows = images[:, low] * (1 - part)[:, None] + images[:, low + 1] * part[:, None]
    both = rows[:, :, low] * (1 - part) + rows[:, :, low + 1] * part
    return (both.reshape(len(pixels), SIDE * SIDE) / 16).astype("float32")


def shifted(pixels):
    """The images as they are and moved by one pixel up, down, left and right: five times as many rows."""
    images = pixels.reshape(-1, SIDE, SIDE)
    moves = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)]
    return np.concatenate([np.roll(images, move, axis=(1, 2)) for move in moves]).reshape(-1, SIDE * SIDE), len(moves)


def sizes(classifier):
    """What there is to evaluate, for the report."""
    if isinstance(classifier, SVC):
        return f"SVC, rbf, {classifier.n_support_.sum()} support vectors"
    if isinstance(classifier, RandomForestClassifier):
        return f"RandomForestClassifier, {len(classifier.estimators_)} trees"
    return f"{type(classifier).__name__}, 10 × 784 coefficients"


def stamp():
    return hashlib.sha256(Path(__file__).read_bytes() + sklearn.__version__.encode() + np.__version__.encode()).hexdigest() + "\n"


def main():
    done = DATA / "stamp"
    models = [HERE / name / "model.joblib" for name in [*CLASSIFIERS, "rowwise"]]
    if done.exists() and done.read_text() == stamp() and all(model.exists() for model in models):
        return
    DATA.mkdir(exist_ok=True)
    done.unlink(missing_ok=True)
    pixels, labels = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(enlarge(pixels), labels, test_size=0.25, random_state=SEED, stratify=labels)
    train, times = shifted(train)
    train_labels = np.tile(train_labels, times)
    test.tofile(DATA / "queries.f32")

    def keep(name, answers, what):
        np.asarray(answers, dtype="int64").tofile(DATA / f"{name}.i64")
        (DATA / f"{name}.sizes").write_text(what + "\n")

    for name, classifier in CLASSIFIERS.items():
        classifier.fit(train, train_labels)
        answers = classifier.predict(test)
        joblib.dump(classifier, HERE / name / "model.joblib")
        keep(name, answers, sizes(classifier))
        print(f"    {name:11} {sizes(classifier)}; {np.mean(answers == test_labels):.3f} of {len(test)} held-out digits right")
    linear = CLASSIFIERS["linear-svm"]
    joblib.dump(list(zip(linear.coef_.astype("float32"), linear.intercept_.tolist())), HERE / "rowwise" / "model.joblib")
    keep("rowwise", linear.predict(test), "the linear SVM's coefficients, row by row: ten dot products each in a Python loop")
    keep("noop", np.zeros(len(test)), "answers zeros")
    done.write_text(stamp())


if __name__ == "__main__":
    main()
