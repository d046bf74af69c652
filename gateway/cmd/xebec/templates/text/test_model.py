import pytest
import xebec
import xebec.testing

model = xebec.testing.load(__file__)


def test_words():
    assert model.predict("a great day") > 0.5 > model.predict("an awful day")


def test_an_empty_text_is_refused():
    with pytest.raises(xebec.Error, match="empty"):
        model.predict(" ")
