import xebec.testing


def test_a_flower():
    model = xebec.testing.load(__file__)
    assert model.predict([5.1, 3.5, 1.4, 0.2]) == "setosa"
