"""Neural networks of different size, trained with JAX or scikit-learn and written as ONNX graphs.

A network is a list of layers: ("conv", channels) is a convolution of 3 x 3 and a ReLU, ("pool",) halves width and height, ("residual",)
adds the output of two convolutions to their input, ("dense", n) is fully connected, with a ReLU unless it is the last one.
"""

import numpy as np

SIDE, CLASSES, BATCH = 28, 10, 128

# The networks of a set of images of 28 x 28 pixels, smallest first: name, description, layers, epochs.
NETS = [
    ("linear", "softmax regression", [("dense", CLASSES)], 4),
    ("cnn-tiny", "one convolution", [("conv", 4), ("pool",), ("pool",), ("dense", CLASSES)], 3),
    ("lenet", "two convolutions, after LeNet-5", [("conv", 6), ("pool",), ("conv", 16), ("pool",), ("dense", 64), ("dense", CLASSES)], 3),
    ("vgg", "three convolutions, after VGG", [("conv", 8), ("pool",), ("conv", 16), ("conv", 16), ("pool",), ("dense", 96), ("dense", CLASSES)], 3),
    ("resnet", "six convolutions with two shortcuts, after ResNet", [("conv", 8), ("pool",), ("residual",), ("pool",), ("conv", 16), ("residual",), ("dense", CLASSES)], 3),
]


def initial(layers, draw):
    """Parameters of a network: arrays by layer. Weights of a convolution have the shape (out, in, 3, 3), those of a dense layer (in, out)."""
    channels, side, flat, out = 1, SIDE, None, []

    def conv(to):
        return [draw.normal(0, np.sqrt(2 / (9 * channels)), (to, channels, 3, 3)).astype("float32"), np.zeros(to, "float32")]

    for kind, *size in layers:
        if kind == "conv":
            out.append(conv(size[0]))
            channels = size[0]
        elif kind == "residual":
            out.append(conv(channels) + conv(channels))
        elif kind == "pool":
            out.append([])
            side //= 2
        else:
            flat = flat or channels * side * side
            out.append([draw.normal(0, np.sqrt(2 / flat), (flat, size[0])).astype("float32"), np.zeros(size[0], "float32")])
            flat = size[0]
    return out


def count(parameters):
    """The number of parameters."""
    return int(sum(array.size for layer in parameters for array in layer))


def trained(layers, pixels, labels, epochs, seed):
    """Parameters that have learned from images (n, 784) of uint8, by Adam. The same versions of the libraries give the same parameters."""
    import jax
    import jax.numpy as jnp

    def conv(x, w, b):
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")) + b[None, :, None, None]

    def scores(parameters, x):
        for i, ((kind, *_), p) in enumerate(zip(layers, parameters)):
            if kind == "conv":
                x = jax.nn.relu(conv(x, *p))
            elif kind == "residual":
                x = jax.nn.relu(x + conv(jax.nn.relu(conv(x, *p[:2])), *p[2:]))
            elif kind == "pool":
                x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
            else:
                x = x.reshape(len(x), -1) @ p[0] + p[1]
                x = x if i == len(layers) - 1 else jax.nn.relu(x)
        return x

    def loss(parameters, x, y):
        return -jnp.mean(jax.nn.log_softmax(scores(parameters, x))[jnp.arange(len(y)), y])

    @jax.jit
    def step(parameters, first, second, t, x, y):
        gradient = jax.grad(loss)(parameters, x, y)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
        rate = 2e-3 * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        return jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), parameters, first, second), first, second

    draw = np.random.default_rng(seed)
    parameters = initial(layers, draw)
    first = jax.tree.map(jnp.zeros_like, parameters)
    second, t = first, 0
    x = pixels.reshape(-1, 1, SIDE, SIDE).astype("float32") / 255
    for _ in range(epochs):
        order = draw.permutation(len(x))
        for rows in order[: len(order) // BATCH * BATCH].reshape(-1, BATCH):
            t += 1
            parameters, first, second = step(parameters, first, second, t, x[rows], labels[rows])
    return [[np.asarray(array) for array in layer] for layer in parameters]


def of_perceptron(classifier):
    """Layers and parameters of an MLPClassifier of scikit-learn with ReLUs, whose inputs are pixels between 0 and 1."""
    layers = [("dense", w.shape[1]) for w in classifier.coefs_]
    return layers, [[w.astype("float32"), b.astype("float32")] for w, b in zip(classifier.coefs_, classifier.intercepts_)]


def graph(layers, parameters):
    """An ONNX graph: pixels uint8 (n, 784) in, label int64 (n) out."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants = [], []

    def constant(array):
        constants.append(numpy_helper.from_array(np.asarray(array), f"c{len(constants)}"))
        return constants[-1].name

    def add(op, *inputs, **attributes):
        nodes.append(helper.make_node(op, list(inputs), [f"x{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def conv(x, w, b):
        return add("Conv", x, constant(w), constant(b), pads=[1, 1, 1, 1])

    x = add("Cast", "pixels", to=TensorProto.FLOAT)
    x = add("Mul", x, constant(np.float32(1 / 255)))
    x = add("Reshape", x, constant(np.array([-1, 1, SIDE, SIDE])))
    for i, ((kind, *_), p) in enumerate(zip(layers, parameters)):
        if kind == "conv":
            x = add("Relu", conv(x, *p))
        elif kind == "residual":
            x = add("Relu", add("Add", x, conv(add("Relu", conv(x, *p[:2])), *p[2:])))
        elif kind == "pool":
            x = add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        else:
            x = add("Gemm", add("Flatten", x), constant(p[0]), constant(p[1]))
            x = x if i == len(layers) - 1 else add("Relu", x)
    nodes.append(helper.make_node("ArgMax", [x], ["label"], axis=1, keepdims=0))
    pixels = helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["n", SIDE * SIDE])
    label = helper.make_tensor_value_info("label", TensorProto.INT64, ["n"])
    model = helper.make_model(helper.make_graph(nodes, "net", [pixels], [label], constants), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def answers(model, pixels):
    """What ONNX Runtime says of each row."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"pixels": pixels[i : i + 500]})[0] for i in range(0, len(pixels), 500)])
