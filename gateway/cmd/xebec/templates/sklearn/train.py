"""Trains the classifier and writes model.joblib: run it once, and again when the data changes."""

import joblib
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

flowers = load_iris()
classifier = LogisticRegression(max_iter=1000).fit(flowers.data, flowers.target_names[flowers.target])
joblib.dump(classifier, "model.joblib")
print(f"model.joblib is written; accuracy on the training data {classifier.score(flowers.data, flowers.target_names[flowers.target]):.3f}")
