import numpy
import tritonclient.grpc as triton

client = triton.InferenceServerClient("127.0.0.1:1339")
pixels = triton.InferInput("input", [1, 64], "FP32")
pixels.set_data_from_numpy(numpy.zeros((1, 64), dtype=numpy.float32))
answer = client.infer("digits", [pixels], parameters={"context": "ann"}, client_timeout=1)
print(answer.as_numpy("output"), answer.get_response().parameters["query_id"].int64_param)
