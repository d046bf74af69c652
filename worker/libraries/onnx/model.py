import onnxruntime
import xebec

session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
xebec.serve(lambda batch: tuple(session.run(["label", "probabilities"], {"x": batch})))
