import joblib
import xebec

pipeline = joblib.load("model.joblib")
xebec.serve(pipeline.predict, text=True)  # a list of n str in, an array of n str out
