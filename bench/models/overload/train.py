"""Trains the model of bench/cmd/overload and saves it beside this file; does nothing when it is up to date.

The data are scikit-learn's bundled handwritten digits, 1,797 images of 8 x 8 pixels. A quarter is held out; the rest is
learned nine times over, as it is and moved by one pixel in each of eight directions. With so many support vectors an
evaluation takes about half a millisecond, and a batch hardly less than its queries one by one: what a server must shed
under overload is then real work. Everything is seeded: the same versions of the libraries give the same model.

../data/overload.f32 holds the held-out images, float32, 64 a row, and ../data/overload.i64 what the model says of each:
the benchmark sends the former and checks every answer against the latter.
"""

import hashlib
from pathlib import Path

import joblib
import numpy as np
import sklearn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
SEED = 1337
# Narrow enough that most images become support vectors, and wide enough that the held-out ones are still read rightly.
GAMMA = 0.003


def shifted(pixels):
    """The images as they are and moved by one pixel in every direction: nine times as many rows."""
    images = pixels.reshape(-1, 8, 8)
    moves = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    return np.concatenate([np.roll(images, move, axis=(1, 2)) for move in moves]).reshape(-1, 64), len(moves)


def stamp():
    return hashlib.sha256(Path(__file__).read_bytes() + sklearn.__version__.encode() + np.__version__.encode()).hexdigest() + "\n"


def main():
    done = DATA / "overload.stamp"
    made = [HERE / "model.joblib", DATA / "overload.f32", DATA / "overload.i64"]
    if done.exists() and done.read_text() == stamp() and all(path.exists() for path in made):
        return
    DATA.mkdir(exist_ok=True)
    done.unlink(missing_ok=True)
    pixels, labels = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(pixels, labels, test_size=0.25, random_state=SEED, stratify=labels)
    train, times = shifted(train)
    classifier = SVC(kernel="rbf", gamma=GAMMA).fit(train, np.tile(train_labels, times))
    queries = test.astype("float32")
    answers = classifier.predict(queries)
    joblib.dump(classifier, made[0])
    queries.tofile(made[1])
    answers.astype("int64").tofile(made[2])
    done.write_text(stamp())
    print(f"    SVC, rbf, {classifier.n_support_.sum()} support vectors; {np.mean(answers == test_labels):.3f} of {len(test)} held-out digits right")


if __name__ == "__main__":
    main()
