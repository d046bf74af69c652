import xebec
import xgboost

booster = xgboost.Booster(model_file="model.json")
xebec.serve(lambda batch: booster.inplace_predict(batch))  # batch: float32, (n, 30), NaN where missing
