"""The parts of sets.py that need no package of data."""

import io
import tarfile

import numpy as np
import pytest

import nets
import packages
import sets
import speech
import texts


def test_idx_has_the_shape_of_its_header():
    data = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (2, 1, 3)) + bytes(range(6))
    assert sets.idx(data).tolist() == [[[0, 1, 2]], [[3, 4, 5]]]


@pytest.mark.parametrize("data", [b"", b"\0\0\x09\x01\0\0\0\0", b"\0\0\x08\x07" + bytes(40)])
def test_idx_of_something_else_is_missing(data):
    with pytest.raises(packages.Missing):
        sets.idx(data)


def test_series_skips_headers_and_reads_channels():
    values, labels = sets.series(["#a comment", "@data", "", "1.0,2.0:3.0,4.0:7.0", "5:6:1.0"])
    assert labels.tolist() == [7, 1]
    assert [c.tolist() for c in values[0]] == [[1, 2], [3, 4]]
    assert [c.tolist() for c in values[1]] == [[5], [6]]


def test_epigrams_are_separated_by_percent_signs_on_lines_of_their_own():
    assert sets.epigrams("one\n%\ntwo, 50% of it\n\t-- me\n%\n\n%\n") == ["one", "two, 50% of it\n\t-- me"]


def test_texts_come_back_from_rows_without_a_character_that_was_cut():
    long = "x" * (sets.TEXT_BYTES - 1) + "é"
    assert texts.texts(sets.padded(["ab", "é", long])) == ["ab", "é", long[:-1]]


def archive(**files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(f"./usr/share/it/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_unpacked_returns_the_files_and_says_which_one_is_missing():
    tar = archive(a=b"1", b=b"2")
    assert packages.unpacked(tar, "usr/share/it", ["a"]) == {"a": b"1"}
    with pytest.raises(packages.Missing, match="usr/share/it/c"):
        packages.unpacked(tar, "usr/share/it", ["a", "c"])


def test_debian_refuses_other_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    one = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
    assert packages.debian("it", tmp_path, ["a"], one) == {"a": b"1"}
    with pytest.raises(packages.Missing, match="not those"):
        packages.debian("it", tmp_path, ["a"], one[::-1])


def test_make_returns_why_a_set_cannot_be_had():
    def maker(name):
        raise packages.Missing(f"{name} needs a package")

    assert sets.make("it", maker) == "it needs a package"
    assert sets.make("it", lambda name: None) is None


def tone(hertz, seconds):
    return 1000 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * speech.RATE)) / speech.RATE)


def test_cepstra_do_not_depend_on_the_length_of_a_steady_sound():
    short, long, higher = (speech.cepstra(tone(h, s)) for h, s in [(500, 0.3), (500, 0.6), (1500, 0.3)])
    assert short.shape == (speech.FEATURES,)
    short, long, higher = (c.reshape(speech.FRAMES, -1).mean(axis=0) for c in (short, long, higher))
    assert np.abs(short - long).mean() < 0.1 * np.abs(short - higher).mean()


def test_cepstra_of_a_click_are_finite():
    assert np.isfinite(speech.cepstra(np.array([1.0, -1.0]))).all()


def test_filters_cover_the_spectrum_between_the_ends():
    assert speech.FILTERS.shape == (speech.MELS, speech.WINDOW // 2 + 1)
    assert (speech.FILTERS.max(axis=1) > 0).all() and (speech.FILTERS.sum(axis=0)[3:-3] > 0).all()


def test_spoken_drops_silence_at_both_ends_only():
    assert speech.spoken(np.array([0.0, 0.0, 5.0, 0.0, -5.0, 0.01])).tolist() == [5, 0, -5]


def test_noise_has_the_level():
    loud = tone(500, 2)
    noise = speech.noisy(loud, 20, np.random.default_rng(1)) - loud
    assert np.std(noise) / np.std(loud) == pytest.approx(0.1, rel=0.05)


def test_scaled_fills_the_range_and_keeps_a_constant_column():
    rows = speech.scaled(np.array([[float(i), 3.0] for i in range(101)]))
    assert rows.dtype == np.uint8 and rows[0, 0] == 0 and rows[-1, 0] == 255 and rows[50, 0] in (127, 128) and set(rows[:, 1]) == {0}


def test_a_network_has_so_many_parameters():
    layers = [("conv", 4), ("pool",), ("residual",), ("pool",), ("dense", 10)]
    assert nets.count(nets.initial(layers, np.random.default_rng(1))) == (9 * 4 + 4) + 2 * (9 * 4 * 4 + 4) + (7 * 7 * 4 * 10 + 10)


def test_a_graph_says_what_the_perceptron_says():
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from sklearn.neural_network import MLPClassifier

    draw = np.random.default_rng(1)
    pixels, labels = draw.integers(0, 256, (200, 784), dtype="uint8"), draw.integers(0, 10, 200)
    classifier = MLPClassifier((8,), max_iter=5, random_state=1).fit(pixels / 255, labels)
    assert (nets.answers(nets.graph(*nets.of_perceptron(classifier)), pixels) == classifier.predict(pixels / 255)).all()


def test_a_trained_network_knows_what_it_has_seen():
    for module in ["jax", "onnx", "onnxruntime"]:
        pytest.importorskip(module)
    draw = np.random.default_rng(1)
    labels = draw.integers(0, 10, 256)
    pixels = draw.integers(0, 50, (256, 28, 28), dtype="uint8")
    for image, label in zip(pixels, labels):
        image[2 * label : 2 * label + 4, 4:24] = 255
    layers = [("conv", 4), ("residual",), ("pool",), ("conv", 4), ("pool",), ("dense", 16), ("dense", 10)]
    parameters = nets.trained(layers, pixels.reshape(256, -1), labels, 60, 1)
    assert np.mean(nets.answers(nets.graph(layers, parameters), pixels.reshape(256, -1)) == labels) > 0.95
