import models
import xebec

_, _, predict = models.chosen()
xebec.serve(lambda batch: predict(batch))  # batch: an ndarray (n, features), a view of shared memory
