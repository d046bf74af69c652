import xebec.testing


def test_words():
    model = xebec.testing.load(__file__)
    assert model.stream("one word after the other") == ["one", "word", "after", "the", "other"]
