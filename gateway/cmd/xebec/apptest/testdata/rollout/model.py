"""Serves digits.joblib in the working directory."""

import joblib
import xebec

classifier = joblib.load("digits.joblib")
xebec.serve(lambda batch: classifier.predict(batch))
