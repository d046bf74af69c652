"""The trained models recognise held-out digits, and their outputs match their declarations."""

import joblib
import numpy
import pytest
import train


@pytest.fixture(scope="module")
def held_out():
    _, pixels, _, labels = train.split()
    return pixels, labels


def test_split_is_fixed_and_disjoint():
    train_pixels, test_pixels, train_labels, test_labels = train.split()
    assert len(train_labels) == 1347 and len(test_labels) == 450
    again = train.split()
    assert numpy.array_equal(again[1], test_pixels)
    seen = {row.tobytes() for row in train_pixels}
    assert not any(row.tobytes() in seen for row in test_pixels)
    assert train_pixels.dtype == numpy.float32
    assert train_pixels.min() >= 0 and train_pixels.max() <= 16


@pytest.mark.parametrize("name", train.CLASSIFIERS)
def test_model_knows_held_out_digits(name, held_out):
    pixels, labels = held_out
    classifier = joblib.load(train.MODELS / name / "digits.joblib")
    pixels.setflags(write=False)  # a batch is a read-only view
    predicted = classifier.predict(pixels)
    assert predicted.dtype == numpy.int64 and predicted.shape == (len(labels),)
    assert (predicted == labels).mean() >= 0.9


@pytest.mark.parametrize("name", train.CLASSIFIERS)
def test_answers_do_not_depend_on_the_batch(name, held_out):
    pixels, _ = held_out
    classifier = joblib.load(train.MODELS / name / "digits.joblib")
    together = classifier.predict(pixels[:40])
    one_by_one = numpy.concatenate([classifier.predict(pixels[i : i + 1]) for i in range(40)])
    assert numpy.array_equal(together, one_by_one)


@pytest.mark.parametrize("path", sorted(train.MODELS.glob("*/model.py")), ids=lambda path: path.parent.name)
def test_model_scripts_are_short(path):
    """The demo promises models of at most ten lines."""
    assert len(path.read_text().splitlines()) <= 10
