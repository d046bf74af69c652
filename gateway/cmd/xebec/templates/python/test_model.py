import xebec.testing


def test_the_mean():
    model = xebec.testing.load(__file__)
    assert model.predict([1, 2, 3, 6]) == 3
    assert model.predict_batch([[1, 1, 1, 1], [0, 0, 0, 4]]) == [1, 1]
