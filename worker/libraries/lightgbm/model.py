import lightgbm
import xebec

booster = lightgbm.Booster(model_file="model.txt")
xebec.serve(lambda batch: booster.predict(batch, num_threads=1))  # batch: float64, (n, 10)
