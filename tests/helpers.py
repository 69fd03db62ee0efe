"""Helpers for the tests of all layers: comparison, gradients on any backend, the layer check."""

import concurrent.futures
import contextlib
import itertools
import json
import os
import tempfile

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_diet.layers.configuration import constructor_arguments

# The other backends check one, because JAX cannot compile float16 on CPUs.
HALF_POLICIES = ("mixed_float16", "bfloat16", "mixed_bfloat16")
if keras.backend.backend() != "torch":
    HALF_POLICIES = HALF_POLICIES[-1:]


# `keras.Model.run_eagerly` of models whose steps are never compiled.
EAGER = property(lambda trainer: True, lambda trainer, value: None)
# For a test in a file that is marked with `any_backend`.
every_backend = pytest.mark.every_backend


def once(*cases):
    """Test cases that run on one backend, beside cases of the same test that run on each."""
    cases = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=pytest.mark.any_backend) for case in cases]


@contextlib.contextmanager
def floatx(dtype):
    """Change the default dtype of Keras."""
    before = keras.config.floatx()
    keras.config.set_floatx(dtype)
    try:
        yield
    finally:
        keras.config.set_floatx(before)


def normal(rng, *shape):
    """Random numbers as an array of float32."""
    return rng.normal(size=shape).astype("float32")


def to_numpy(x):
    """The array in `x`. Every floating point dtype becomes float32."""
    if isinstance(x, np.ndarray | np.generic | float | int):
        x = np.asarray(x)
        return x.astype("float32") if np.issubdtype(x.dtype, np.floating) else x
    x = ops.convert_to_tensor(x)
    if keras.backend.is_float_dtype(x.dtype):
        x = ops.cast(x, "float32")
    return ops.convert_to_numpy(x)


def assert_close(actual, expected, tolerance=1e-5, name=""):
    """Assert equal shapes, and entries equal up to `tolerance` (absolute, and relative to them)."""
    actual, expected = to_numpy(actual), to_numpy(expected)
    shapes = f"{actual.shape} and {expected.shape}"
    assert actual.shape == expected.shape, f"shapes differ: {shapes} {name}"
    np.testing.assert_allclose(actual, expected, tolerance, tolerance, err_msg=name)


def assert_all_close(actual, expected, tolerance=1e-5):
    """`assert_close` for each array of two nests, such as the weights of two models."""
    tree.map_structure(lambda one, other: assert_close(one, other, tolerance), actual, expected)


def gradients(function, variables, states=(), compiles=False):
    """Gradients of the scalar `function()` by Keras variables, as NumPy arrays in float32.

    A variable that `function` does not use has a gradient of zeros. `states` are variables of
    random generators, which have new values afterwards. JAX forgets those of others, and compiles
    always. TensorFlow and PyTorch have one program if `compiles` is true.
    """
    variables = list(variables)
    if not variables:
        return []
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        def step():
            with tf.GradientTape() as tape:
                loss = function()
            return tape.gradient(loss, [variable.value for variable in variables])

        found = compiled_program(step, jit_compile=True)() if compiles else step()
    elif backend == "jax":
        import jax

        def stateless(values, old):
            mapping = [*zip(variables, values, strict=True), *zip(states, old, strict=True)]
            with keras.StatelessScope(state_mapping=mapping) as scope:
                return function(), [scope.get_current_value(state) for state in states]

        values = [[each.value for each in group] for group in (variables, states)]
        found, new = compiled(jax.grad(stateless, has_aux=True))(*values)
        for state, value in zip(states, new, strict=True):
            state.assign(value)
    else:
        import torch

        # It traces the function and generates no code, so it draws the same random numbers.
        forward = torch.compile(function, backend="aot_eager") if compiles else function
        result, values = forward(), [variable.value for variable in variables]
        # On a GPU, PyTorch computes gradients in another thread than the caller's.
        with concurrent.futures.ThreadPoolExecutor() as thread:
            find = thread.submit(torch.autograd.grad, result, values, allow_unused=True)
        found = find.result()
    return [
        np.zeros(variable.shape, "float32") if gradient is None else to_numpy(gradient)
        for variable, gradient in zip(variables, found, strict=True)
    ]


def compiled(function):
    """`function`, on JAX compiled as a whole: compiling each operation takes longer."""
    if keras.backend.backend() != "jax":
        return function
    import jax

    return jax.jit(function)


def compiled_program(function, **options):
    """`function`, compiled as a program that holds for these arguments. TensorFlow has options."""
    if keras.backend.backend() != "tensorflow":
        return compiled(function)
    import tensorflow as tf

    return tf.function(function, **options)


def randomize(layer, rng, scale=0.3):
    """Give every weight of `layer` random values of standard deviation `scale`; return `layer`."""
    for weight in layer.weights:
        weight.assign(rng.normal(scale=scale, size=weight.shape).astype("float32"))
    return layer


def weighted_sum(x, weights):
    """`sum(x * weights)` in float32. With random `weights`, gradients are rarely zero."""
    return ops.sum(ops.multiply(ops.cast(x, "float32"), ops.convert_to_tensor(weights)))


def random_loss(function, rng):
    """A function that returns the sum of all outputs of `function`, with random weights."""
    outputs = [output for output in tree.flatten(function()) if output is not None]
    weights = [rng.normal(size=tuple(output.shape)).astype("float32") for output in outputs]

    def loss():
        results = [output for output in tree.flatten(function()) if output is not None]
        return sum(
            weighted_sum(result, weight) for result, weight in zip(results, weights, strict=True)
        )

    return loss


def assert_weights_start_differently(layer):
    """Assert that no two random weights of one shape are equal in a new layer or model.

    The test needs the fixture `keras_initializers`. Keras's own initializers return the same values
    in every call, and the NumPy initializers of the other tests do not.
    """
    values = {weight.path: to_numpy(weight) for weight in layer.weights}
    random = {path: array for path, array in values.items() if np.ptp(array) > 0}
    pairs = [
        (first, second)
        for first, second in itertools.combinations(random, 2)
        if random[first].shape == random[second].shape
    ]
    assert pairs, "no two weights have the same shape"
    equal = [pair for pair in pairs if np.array_equal(random[pair[0]], random[pair[1]])]
    assert not equal, f"these weights start equal: {equal}"


def check_layer(layer, *inputs, zero_gradient=(), policies=HALF_POLICIES, **call_kwargs):
    """Check what every layer must do. No argument of `layer` should have its default value.

    1. Its configuration is JSON, holds every constructor argument, and makes an equal layer.
    2. In a functional model, saved to `.keras` and loaded, it returns the same outputs.
    3. Every trainable weight has a gradient that is not zero. `zero_gradient` lists exceptions, by
       the end of their path. Their gradient must be zero.
    4. Its symbolic outputs have the shape and dtype of its outputs.
    5. Under each of `policies` its outputs are finite and of the compute dtype.
    """
    rng = np.random.default_rng(17)
    outputs = layer(*inputs, **call_kwargs)
    randomize(layer, rng)
    check_config(layer)
    _check_saving(layer, inputs, call_kwargs)
    _check_gradients(layer, inputs, call_kwargs, zero_gradient, rng)
    _check_symbolic(layer, inputs, call_kwargs, outputs)
    for policy in policies:
        _check_policy(layer, inputs, call_kwargs, policy)


def check_config(layer):
    """Assert that `layer` has an equal copy, from its configuration and from its serialization."""
    config = layer.get_config()
    names = constructor_arguments(type(layer))
    lost = [name for name in names if name not in config and not _refuses(layer, name)]
    assert not lost, f"not in the config: {lost}"
    names = [name for name in names if name in config]
    serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    copies = (
        type(layer).from_config(config),
        keras.saving.deserialize_keras_object(serialized),
    )
    for copy in copies:
        assert type(copy) is type(layer)
        assert _plain(copy.get_config()) == _plain(config)
        for name in names:
            if isinstance(getattr(layer, name, None), keras.layers.Layer):
                # The attribute is a layer that was built from the argument.
                continue
            assert _argument(copy, name) == _argument(layer, name), f"`{name}` is lost"


def _refuses(layer, argument):
    """Whether the constructor refuses an argument that one of its base classes accepts."""
    try:
        type(layer).from_config({**layer.get_config(), argument: None})
    except TypeError:
        return True
    return False


def _argument(layer, name):
    """The attribute that holds a constructor's argument, as text that can be compared."""
    value = getattr(layer, name) if hasattr(layer, name) else getattr(layer, f"_{name}")
    return _plain(keras.saving.serialize_keras_object(value))


def _plain(config):
    """A configuration as JSON text: lists for tuples, and no shapes of built layers."""
    text = json.dumps(config, default=keras.saving.serialize_keras_object)

    def without_shapes(values):
        return {name: value for name, value in values.items() if name != "build_config"}

    return json.dumps(json.loads(text, object_hook=without_shapes), sort_keys=True)


def _check_saving(layer, inputs, call_kwargs):
    is_array = {name: isinstance(value, np.ndarray) for name, value in call_kwargs.items()}
    options = {name: value for name, value in call_kwargs.items() if not is_array[name]}
    arrays = {name: value for name, value in call_kwargs.items() if is_array[name]}
    symbolic = [_input(array) for array in inputs]
    symbolic_kwargs = {name: _input(array) for name, array in arrays.items()}
    model = keras.Model(
        [*symbolic, *symbolic_kwargs.values()], layer(*symbolic, **symbolic_kwargs, **options)
    )
    values = [*inputs, *arrays.values()]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        loaded = keras.saving.load_model(path)
    # Loaded models return lists where layers return tuples.
    expected = tree.flatten(layer(*inputs, **call_kwargs))
    for output, expected_output in zip(tree.flatten(loaded(values)), expected, strict=True):
        assert_close(output, expected_output, 1e-6)


def _input(array):
    return keras.Input(array.shape[1:], dtype=array.dtype.name)


def _check_gradients(layer, inputs, call_kwargs, zero_gradient, rng):
    loss = random_loss(lambda: layer(*inputs, **call_kwargs), rng)
    weights = layer.trainable_weights
    assert weights or not layer.weights
    unused = set(zero_gradient)
    for weight, gradient in zip(weights, gradients(loss, weights), strict=True):
        largest = np.max(np.abs(gradient))
        expected_zero = {name for name in zero_gradient if weight.path.endswith(name)}
        unused -= expected_zero
        if expected_zero:
            assert largest < 1e-4, f"{weight.path} should have no gradient, but has {largest}"
        else:
            assert largest > 1e-4, f"{weight.path} has no gradient"
    assert not unused, f"no weights of these names: {unused}"


def _check_symbolic(layer, inputs, call_kwargs, outputs):
    def symbolic(value):
        if not isinstance(value, np.ndarray):
            return value
        return keras.KerasTensor(value.shape, dtype=value.dtype.name)

    spec = layer.compute_output_spec(
        *map(symbolic, inputs), **{name: symbolic(value) for name, value in call_kwargs.items()}
    )

    def check(symbolic_output, output):
        assert tuple(symbolic_output.shape) == tuple(output.shape)
        assert symbolic_output.dtype == keras.backend.standardize_dtype(output.dtype)

    tree.map_structure(check, spec, outputs)


def _check_policy(layer, inputs, call_kwargs, policy):
    half = type(layer).from_config({**layer.get_config(), "dtype": policy})
    build = layer.get_build_config()
    half.build_from_config(build)
    half.set_weights([to_numpy(weight) for weight in layer.weights])

    def call():
        return half(*inputs, **call_kwargs)

    # JAX cannot compile attention in float16 on CPUs, not even the attention of Keras.
    for output in tree.flatten(call() if "float16" in policy.split("_") else compiled(call)()):
        # Scores that grow with the distance are more precise.
        expected = {half.compute_dtype, getattr(half, "score_dtype", half.compute_dtype)}
        assert keras.backend.standardize_dtype(output.dtype) in expected
        assert np.all(np.isfinite(to_numpy(output))), f"not finite under {policy}"


# What the reference calls weights whose names are others in the layers.
NAMES_OF_REFERENCE = {
    "key_embedding": "distance_key_embedding",
    "value_embedding": "distance_value_embedding",
    "position/kernel": "position_kernel",
}


def attention_weights(attention):
    """The weights of an attention layer as `reference.multi_head_attention` takes them."""
    projections = {
        "query": attention.query_dense,
        "key": attention.key_dense,
        "value": attention.value_dense,
        "output": attention.output_dense,
    }
    weights = {}
    for name, dense in projections.items():
        weights[f"{name}_kernel"] = to_numpy(dense.kernel)
        bias_shape = dense.kernel.shape[1:] if name != "output" else dense.kernel.shape[-1:]
        bias = np.zeros(bias_shape) if dense.bias is None else to_numpy(dense.bias)
        weights[f"{name}_bias"] = bias
    # What a variant of attention has beside them.
    of_projections = {id(each) for dense in projections.values() for each in dense.weights}
    for weight in attention.weights:
        if id(weight) not in of_projections:
            name = weight.path.removeprefix(f"{attention.path}/")
            weights[NAMES_OF_REFERENCE.get(name, name)] = to_numpy(weight)
    if "position_terms" in attention.get_config():
        names = ("position_terms", "max_distance", "num_buckets")
        weights |= {name: getattr(attention, name) for name in names}
        weights["table"] = {each.name: to_numpy(each) for each in attention.table.weights}
        weights["scale"] = attention.score_scale
    if "max_wavelength" in attention.get_config():
        weights["max_wavelength"] = attention.max_wavelength
    return weights


def block_weights(block):
    """The weights of a `BiasedTransformerEncoder` as `reference.encoder_block` takes them."""
    weights = {
        "attention": attention_weights(block.self_attention),
        **norm_weights("attention_norm", block.self_attention_layer_norm),
        **norm_weights("output_norm", block.feedforward_layer_norm),
    }
    for name in ("intermediate", "output", *(["gate"] if block.gated else [])):
        dense = getattr(block, f"feedforward_{name}_dense")
        weights[f"{name}_kernel"] = to_numpy(dense.kernel)
        weights[f"{name}_bias"] = 0.0 if dense.bias is None else to_numpy(dense.bias)
    return weights


def norm_weights(name, layer):
    """The weights of a normalization, or none without the layer. `beta` is 0 if it has none."""
    if layer is None:
        return {}
    gamma, *beta = map(to_numpy, layer.weights)
    return {f"{name}_gamma": gamma, f"{name}_beta": beta[0] if beta else 0.0}


def decoder_block_weights(block):
    """The weights of a `BiasedTransformerDecoder` as `reference.decoder_block` takes them."""
    return {
        **block_weights(block),
        "cross_attention": attention_weights(block.cross_attention),
        **norm_weights("cross_attention_norm", block.cross_attention_layer_norm),
    }
