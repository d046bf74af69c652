"""Trains a regression on rows that are made here, some ages missing; writes model.joblib."""

import joblib
import numpy as np
import pandas
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

CITIES = ["Köln", "Lyon", "Porto"]


def rows(seed, n):
    """Returns a frame with n rows and what is to be predicted."""
    draw = np.random.default_rng(seed)
    frame = pandas.DataFrame({"age": draw.normal(40, 12, n), "visits": draw.integers(0, 20, n), "city": draw.choice(CITIES, n)})
    target = frame["age"] + 3 * frame["visits"] + frame["city"].map({"Köln": 0, "Lyon": 10, "Porto": 20})
    frame.loc[draw.random(n) < 0.1, "age"] = np.nan
    return frame, target


if __name__ == "__main__":
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "visits"]), (OneHotEncoder(handle_unknown="ignore"), ["city"])
    )
    joblib.dump(make_pipeline(columns, Ridge()).fit(*rows(7, 500)), "model.joblib")
