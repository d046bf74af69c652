import joblib
import pandas
import xebec

pipeline = joblib.load("model.joblib")
xebec.serve(lambda columns: pipeline.predict(pandas.DataFrame(columns)), text=True)  # a dict of columns
