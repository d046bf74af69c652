import joblib
import xebec

pipeline = joblib.load("model.joblib")


@xebec.frame
def predict(df):
    return pipeline.predict(df)


xebec.serve(predict)
