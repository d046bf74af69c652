"""The models that every server of bench/cmd/peers serves, and their queries.

`load(name)` returns a function from a batch, an ndarray of float32 with the shape (n, features), to an ndarray of int64
with the shape (n,). A server's own file has only what its framework asks for.

Run as a program it trains the models into the folder named by PEER_MODELS; it does nothing if they are up to date. That
needs skl2onnx; the servers do not.
"""

import hashlib
import json
import os
from pathlib import Path

import numpy as np

FOLDER = Path(os.environ["PEER_MODELS"])
SEED = 1337
QUERIES = 32
FEATURES = {"noop": 4, "digits": 64, "digits-onnx": 64}


def load(name):
    if name == "noop":
        # It evaluates nothing, but its answer shows that it read the query.
        return lambda batch: batch[:, 0].astype("int64")
    if name == "digits":
        import joblib

        return joblib.load(FOLDER / "digits.joblib").predict
    if name == "digits-onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # The graph is tiny: more threads would wait for each other.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(FOLDER / "digits.onnx", options, providers=["CPUExecutionProvider"])
        return lambda batch: session.run(["label"], {"input": batch})[0]
    raise ValueError(f"there is no model {name!r}: expected one of {', '.join(FEATURES)}")


def name():
    """The name of the model that this server has."""
    return os.environ["PEER_MODEL"]


def chosen():
    """The model that this server has: its name, the number of its features, and its function."""
    return name(), FEATURES[name()], load(name())


def train():
    import skl2onnx
    import sklearn
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import train_test_split

    versions = f"{sklearn.__version__} {np.__version__} {skl2onnx.__version__}"
    stamp = hashlib.sha256(Path(__file__).read_bytes() + versions.encode()).hexdigest()
    done = FOLDER / "stamp"
    if done.exists() and done.read_text() == stamp:
        return
    import joblib

    FOLDER.mkdir(parents=True, exist_ok=True)
    pixels, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, _ = train_test_split(
        pixels.astype("float32"), labels, test_size=0.25, random_state=SEED, stratify=labels
    )
    classifier = LogisticRegression(C=0.01, max_iter=1000, random_state=SEED).fit(train_x, train_y)
    joblib.dump(classifier, FOLDER / "digits.joblib")
    graph = skl2onnx.to_onnx(
        classifier,
        initial_types=[("input", skl2onnx.common.data_types.FloatTensorType([None, 64]))],
        options={"zipmap": False},
        target_opset=17,
    )
    (FOLDER / "digits.onnx").write_bytes(graph.SerializeToString())
    digits = test_x[:QUERIES]
    # Numbers that every encoder writes in the same way, and a first one that differs from query to query.
    numbers = np.array([[i, 0.5, 1.25, -3.75] for i in range(QUERIES)], dtype="float32")
    queries = {
        name: {"inputs": rows.tolist(), "outputs": np.asarray(answers).tolist()}
        for name, rows, answers in [
            ("noop", numbers, numbers[:, 0].astype("int64")),
            ("digits", digits, classifier.predict(digits)),
            ("digits-onnx", digits, classifier.predict(digits)),
        ]
    }
    (FOLDER / "queries.json").write_text(json.dumps(queries))
    done.write_text(stamp)


if __name__ == "__main__":
    train()
