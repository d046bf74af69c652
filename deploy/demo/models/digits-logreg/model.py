import joblib
import xebec

classifier = joblib.load("digits.joblib")
xebec.serve(lambda batch: classifier.predict(batch))  # batch: an ndarray (n, 64), a view of shared memory
