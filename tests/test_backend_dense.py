"""`_backend.dense` returns the same as the layer."""

import contextlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_diet import _backend, _graph
from tests.helpers import assert_close, gradients, randomize, to_numpy, weighted_sum

# Other backends call the layer.
pytestmark = pytest.mark.any_backend("torch")
BATCH, LENGTH, HIDDEN, NUM_HEADS, KEY_DIM = 2, 5, 7, 3, 11
X_SHAPE = (BATCH, LENGTH, HIDDEN)


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def to_heads(num_heads, key_dim, bias_axes="de", **kwargs):
    shape = (None, num_heads, key_dim)
    return keras.layers.EinsumDense("abc,cde->abde", shape, bias_axes=bias_axes, **kwargs)


def from_heads(bias_axes="e", **kwargs):
    return keras.layers.EinsumDense("abcd,cde->abe", (None, HIDDEN), bias_axes=bias_axes, **kwargs)


# How to make the layer, the shape of an input and over how many of its axes the layer goes.
LAYERS = {
    "dense": (lambda **kwargs: keras.layers.Dense(KEY_DIM, **kwargs), X_SHAPE, 1),
    "activation": (lambda **kwargs: keras.layers.Dense(KEY_DIM, "gelu", **kwargs), X_SHAPE, 1),
    "to_heads": (lambda **kwargs: to_heads(NUM_HEADS, KEY_DIM, **kwargs), X_SHAPE, 1),
    "to_square_heads": (lambda **kwargs: to_heads(3, 3, **kwargs), (BATCH, LENGTH, 3), 1),
    "from_heads": (from_heads, (BATCH, LENGTH, NUM_HEADS, KEY_DIM), 2),
    "from_square_heads": (from_heads, (BATCH, LENGTH, 3, 3), 2),
}
NO_BIAS = {
    name: {"use_bias": False} if name in ("dense", "activation") else {"bias_axes": None}
    for name in LAYERS
}
some_layers = pytest.mark.parametrize("name", ["dense", "to_heads", "from_heads"])


def make_layer(rng, name, **kwargs):
    """A built layer, its inputs, and the number of axes."""
    make, shape, num_axes = LAYERS[name]
    layer = make(**kwargs)
    layer.build(shape)
    return randomize(layer, rng), ops.convert_to_tensor(normal(rng, *shape)), num_axes


@pytest.mark.parametrize("name", LAYERS)
def test_outputs_and_gradients_equal_those_of_the_layer(rng, name, library):
    layer, inputs, num_axes = make_layer(rng, name)
    # The gradient of the loss by `random` is the output.
    inputs, random = keras.Variable(inputs), keras.Variable(normal(rng, *layer(inputs).shape))
    variables = [inputs, random, *layer.trainable_weights]
    actual, expected = (
        gradients(
            lambda call=call: weighted_sum(call(ops.convert_to_tensor(inputs)), random), variables
        )
        for call in (lambda inputs: _backend.dense(layer, inputs, num_axes), layer)
    )
    for gradient, expected_gradient in zip(actual, expected, strict=True):
        assert np.abs(expected_gradient).max() > 1e-2
        assert_close(gradient, expected_gradient)


def library_of(function, *tensors):
    """The library that multiplies in a function, in the context of the caller."""
    code = _graph.record(function, tensors)[0].code
    libraries = {"oneDNN": code.count("mkldnn"), "MKL": code.count("mm_default")}
    assert sorted(libraries.values()) == [0, 1]
    return max(libraries, key=libraries.get)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("use_bias", [True, False])
def test_outputs_without_gradients(rng, name, use_bias, library):
    """On the way of each processor, also for one row and for none."""
    import torch

    layer, inputs, num_axes = make_layer(rng, name, **({} if use_bias else NO_BIAS[name]))
    expected = to_numpy(layer(inputs))
    with torch.no_grad():
        for x, rows in [
            (inputs, slice(None)),
            (inputs.mT.contiguous().mT, slice(None)),
            (inputs[1:], slice(1, None)),
            (inputs[:0], slice(0)),
        ]:
            output = _backend.dense(layer, x, num_axes)
            assert output.shape == expected[rows].shape
            assert_close(output, expected[rows], 1e-6)
        assert library_of(lambda x: _backend.dense(layer, x, num_axes), inputs) == library


on_amd = pytest.mark.parametrize("library", ["oneDNN"], indirect=True)
# Contexts of PyTorch, and the dtypes of layers.
CONTEXTS = {
    "no_grad": lambda torch: torch.no_grad(),
    "inference_mode": lambda torch: torch.inference_mode(),
    "enable_grad": lambda torch: torch.enable_grad(),
    "autocast": lambda torch: torch.autocast("cpu", torch.bfloat16),
    "no_onednn": lambda torch: torch.backends.mkldnn.flags(enabled=False),
    "float64": lambda torch: contextlib.nullcontext(),
    "bfloat16": lambda torch: contextlib.nullcontext(),
}


@on_amd
@pytest.mark.parametrize("name", CONTEXTS)
def test_onednn_multiplies_where_it_can(rng, name, library):
    import torch

    dtype = name if name in ("float64", "bfloat16") else "float32"
    layer, inputs, _ = make_layer(rng, "dense", dtype=dtype)
    inputs = ops.cast(inputs, dtype)
    with torch.no_grad(), CONTEXTS[name](torch):
        wanted = library if name in ("no_grad", "inference_mode", "enable_grad") else "MKL"
        assert library_of(lambda x: _backend.dense(layer, x), inputs) == wanted


ARGUMENTS = ("inputs", "kernel", "bias")


def make_product(rng, argument):
    """Functions of one argument, which multiply by `_linear` and by PyTorch, and a value of it."""
    layer, inputs, _ = make_layer(rng, "dense")
    values = {"inputs": inputs, "kernel": layer.kernel.value, "bias": layer.bias.value}
    values = {name: value.detach() for name, value in values.items()}

    def of_argument(function):
        return lambda value: function(*{**values, argument: value}.values())

    plain = of_argument(lambda inputs, kernel, bias: inputs @ kernel + bias)
    return of_argument(_backend._linear), plain, values[argument]


# PyTorch computes gradients in forward mode inside of `no_grad` too.
DERIVATIVES = {
    "forward": lambda torch, f, x: torch.func.jvp(f, (x,), (torch.cos(3 * x),))[1],
    "forward in no_grad": lambda torch, f, x: torch.no_grad()(DERIVATIVES["forward"])(torch, f, x),
    "second": lambda torch, f, x: torch.func.hessian(lambda x: f(x).sin().sum())(x),
    "backward twice": lambda torch, f, x: torch.autograd.functional.hessian(
        lambda x: f(x).sin().sum(), x
    ),
    "of each row": lambda torch, f, x: torch.func.jacrev(f)(x),
}


@on_amd
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*performance drop:UserWarning")
@pytest.mark.parametrize("argument", ARGUMENTS)
@pytest.mark.parametrize("kind", DERIVATIVES)
def test_other_derivatives(rng, argument, kind, library):
    import torch

    product, plain, value = make_product(rng, argument)
    found, expected = (DERIVATIVES[kind](torch, f, value) for f in (product, plain))
    assert np.abs(to_numpy(expected)).max() > 1e-2
    assert_close(found, expected, 1e-5)


@on_amd
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_frozen_arguments_cost_no_product(rng, monkeypatch, argument, library):
    product, _, value = make_product(rng, argument)
    output = product(value.requires_grad_()).sum()
    calls, linear = [], _backend._linear
    monkeypatch.setattr(_backend, "_linear", lambda *args: calls.append(args) or linear(*args))
    output.backward()
    assert len(calls) == (argument != "bias")


@on_amd
@pytest.mark.parametrize("empty", [np.s_[:0], np.s_[:, :0]], ids=["batch", "length"])
def test_gradients_of_no_rows(rng, empty, library):
    layer, inputs, _ = make_layer(rng, "dense")
    output = _backend.dense(layer, inputs[empty])
    assert output.shape == (*inputs[empty].shape[:2], KEY_DIM)
    output.sum().backward()
    assert np.all(to_numpy(layer.kernel.value.grad) == 0)


def trainable_product(rng):
    """Inputs and a matrix with gradients."""
    shapes = (X_SHAPE, (HIDDEN, 4))
    return [ops.convert_to_tensor(normal(rng, *shape)).requires_grad_() for shape in shapes]


@on_amd
def test_a_penalty_of_gradients(rng, library):
    import torch

    inputs, matrix = trainable_product(rng)
    found = []
    for product in (_backend._linear, torch.matmul):
        loss = product(inputs, matrix).sin().sum()
        first = torch.autograd.grad(loss, [inputs, matrix], create_graph=True)
        penalty = sum((gradient**2).sum() for gradient in first)
        found.append(torch.autograd.grad(penalty, [inputs, matrix]))
    for gradient, expected in zip(*found, strict=True):
        assert np.abs(to_numpy(expected)).max() > 1e-2
        assert_close(gradient, expected, 1e-5)


@on_amd
def test_what_changes_in_place(rng, library):
    """The output may change, as without oneDNN. Weights that the gradient needs may not."""
    import torch

    inputs, matrix = trainable_product(rng)
    output = _backend._linear(inputs, matrix)
    output.relu_()
    assert_close(output, (inputs @ matrix).relu(), 1e-6)
    with torch.no_grad():
        matrix.mul_(2)
    with pytest.raises(RuntimeError, match="inplace"):
        output.sum().backward()


@on_amd
def test_frozen_layers_keep_no_inputs(rng, library):
    import torch

    inputs, matrix = trainable_product(rng)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
        _backend._linear(inputs, matrix.detach())
        _backend._linear(inputs.detach(), matrix)
    assert [tuple(tensor.shape) for tensor in kept] == [(HIDDEN, 4), (BATCH * LENGTH, HIDDEN)]


@on_amd
@pytest.mark.parametrize("change", ["sliced", "expanded", "permuted"])
def test_onednn_gets_matrices_that_it_multiplies_quickly(rng, monkeypatch, change, library):
    """With other strides, it takes a thousand times as long."""
    import torch

    strides, multiply = [], torch.ops.mkldnn._linear_pointwise

    def watched(inputs, matrix, *options):
        strides.append(matrix.is_contiguous() or matrix.T.is_contiguous())
        return multiply(inputs, matrix, *options)

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", watched)
    losses = {
        "sliced": lambda x: torch.cat([x, torch.ones_like(x)], -1).sin().sum(),
        "expanded": lambda x: x.sum(),
        "permuted": lambda x: x.permute(2, 0, 1).contiguous().sin().sum(),
    }
    inputs, matrix = trainable_product(rng)
    found = [
        torch.autograd.grad(losses[change](product(inputs, matrix)), [inputs, matrix])
        for product in (_backend._linear, torch.matmul)
    ]
    assert strides == [True, True, True]
    for gradient, expected in zip(*found, strict=True):
        assert_close(gradient, expected, 1e-5)


@pytest.mark.parametrize("strided", ["inputs", "matrix", "bias"])
def test_any_strides(rng, strided, library):
    """As in `torch.vmap` over the weights of several models."""
    import torch

    shapes = {"inputs": (4, HIDDEN), "matrix": (HIDDEN, 6), "bias": (6,)}
    arrays = {name: normal(rng, *shape) for name, shape in shapes.items()}
    tensors = {name: torch.as_tensor(array) for name, array in arrays.items()}
    tensors[strided] = torch.stack([tensors[strided], 0 * tensors[strided]], dim=-1)[..., 0]
    with torch.no_grad():
        output = _backend._linear(**tensors)
    assert_close(output, arrays["inputs"] @ arrays["matrix"] + arrays["bias"], 1e-6)


@on_amd
def test_onednn_multiplies_on_cpus(library):
    import torch

    assert _backend._onednn_takes(torch.zeros(2, 3))
    assert not _backend._onednn_takes(torch.zeros(2, 3, device="meta"))


def names_a_gpu(device):
    return device == "cuda"


@pytest.mark.parametrize(
    "name, function",
    [("is_autocast_enabled", names_a_gpu), ("compiler.is_compiling", lambda: True)],
)
def test_programs_and_casts_are_seen(monkeypatch, name, function):
    assert _backend.only_runs()
    monkeypatch.setattr(f"torch.{name}", function)
    assert not _backend.only_runs()


@on_amd
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_exported_programs_have_common_operations(rng, library):
    """Other machines may lack oneDNN, and so does ONNX."""
    import torch

    inputs, matrix = map(ops.convert_to_tensor, (normal(rng, *X_SHAPE), normal(rng, HIDDEN, 4)))

    class Product(torch.nn.Module):
        def forward(self, inputs):
            return _backend.matmul(inputs, matrix)

    with torch.no_grad():
        exported = torch.export.export(Product(), (inputs,)).graph
        traced = torch.jit.trace(Product(), inputs).graph
    for graph in (str(exported), str(traced)):
        assert "linear" in graph
        assert "mkldnn" not in graph


def test_product_with_a_matrix(rng, library):
    import torch

    inputs, matrix = map(ops.convert_to_tensor, (normal(rng, *X_SHAPE), normal(rng, HIDDEN, 4)))
    with torch.no_grad():
        assert_close(_backend.matmul(inputs, matrix), ops.matmul(inputs, matrix), 1e-6)
        assert library_of(_backend.matmul, inputs, matrix) == library


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_product_with_a_matrix_in_half_precision(rng, dtype):
    inputs, matrix = map(ops.convert_to_tensor, (normal(rng, *X_SHAPE), normal(rng, HIDDEN, 4)))
    inputs, matrix = ops.cast(inputs, "bfloat16"), ops.cast(matrix, dtype)
    output, expected = _backend.matmul(inputs, matrix), ops.matmul(inputs, matrix)
    assert output.dtype == expected.dtype
    assert_close(output, expected, 0)


@pytest.mark.parametrize(
    "capabilities, libraries, is_slow",
    [
        ({"cpu_name": "AMD EPYC 9B45"}, ["mkl", "mkldnn"], True),
        ({"cpu_name": "AMD EPYC 9B45"}, ["mkl"], False),
        ({"cpu_name": "AMD EPYC 9B45"}, ["mkldnn"], False),
        ({"cpu_name": "Intel(R) Xeon(R) Platinum 8481C"}, ["mkl", "mkldnn"], False),
        ({"architecture": "arm64"}, ["mkl", "mkldnn"], False),
        (None, ["mkl", "mkldnn"], False),
    ],
    ids=["amd", "without_onednn", "without_mkl", "intel", "arm", "old_pytorch"],
)
def test_processors_on_which_mkl_is_slow(monkeypatch, capabilities, libraries, is_slow):
    import torch

    for name in ("mkl", "mkldnn"):
        library = getattr(torch.backends, name)
        monkeypatch.setattr(library, "is_available", lambda name=name: name in libraries)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    if capabilities is None:
        monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert _backend._is_mkl_slow.__wrapped__() == is_slow


@some_layers
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "bfloat16"])
def test_dtypes_are_those_of_the_layer(rng, name, policy):
    layer, inputs, num_axes = make_layer(rng, name, dtype=policy)
    for x in (inputs, ops.cast(inputs, layer.compute_dtype)):
        actual, expected = _backend.dense(layer, x, num_axes), layer(x)
        assert actual.dtype == expected.dtype
        assert_close(actual, expected, 2e-2)


def with_lora(layer):
    layer.enable_lora(2)
    for weight in layer.trainable_weights:
        weight.assign(normal(np.random.default_rng(3), *weight.shape))


def with_other_call(layer):
    """Calibration of quantized weights replaces `call`."""
    call = layer.call
    layer.call = lambda inputs, training=None: 2 * call(inputs)


CHANGES = {
    "lora": with_lora,
    "int8": lambda layer: layer.quantize("int8"),
    "lora_of_int8": lambda layer: (layer.quantize("int8"), with_lora(layer)),
    "call": with_other_call,
    "hook": lambda layer: layer.register_forward_hook(lambda _, inputs, output: 2 * output),
    "pre_hook": lambda layer: layer.register_forward_pre_hook(lambda _, inputs: 2 * inputs[0]),
}


@some_layers
@pytest.mark.parametrize("change", CHANGES)
def test_a_layer_that_does_more_is_called(rng, name, change):
    layer, inputs, num_axes = make_layer(rng, name)
    before = to_numpy(layer(inputs))
    CHANGES[change](layer)
    expected = to_numpy(layer(inputs))
    assert np.abs(expected - before).max() > 1e-4
    assert_close(_backend.dense(layer, inputs, num_axes), expected, 1e-6)


def test_hooks_of_gradients_are_called(rng):
    from torch.nn.modules import module

    layer, inputs, _ = make_layer(rng, "dense")
    registers = (
        layer.register_full_backward_hook,
        layer.register_full_backward_pre_hook,
        module.register_module_full_backward_hook,
        module.register_module_full_backward_pre_hook,
    )
    for register in registers:
        called = []
        with register(lambda *_, called=called: called.append(True)):
            _backend.dense(layer, inputs.requires_grad_()).sum().backward()
        assert called


class Doubled(keras.layers.Dense):
    def call(self, inputs):
        return 2 * super().call(inputs)


def test_subclasses_and_layers_with_losses_are_called(rng):
    x = ops.convert_to_tensor(normal(rng, BATCH, HIDDEN))
    layer = Doubled(KEY_DIM)
    assert_close(_backend.dense(layer, x), layer(x))
    layer = keras.layers.Dense(KEY_DIM, activity_regularizer="l2")
    output = to_numpy(_backend.dense(layer, x))
    assert_close(layer.losses[0], 0.01 * np.sum(output**2) / BATCH)
