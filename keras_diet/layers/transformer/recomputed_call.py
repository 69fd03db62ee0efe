"""Calls of layers that are computed again for the gradient, with the same random numbers."""

import itertools
import operator
from collections.abc import Callable
from typing import Any

import keras
from keras import ops, tree

from keras_diet import _backend
from keras_diet._compat import autocast_disabled, global_seed, keras_masks_removed
from keras_diet.layers.attention.score_terms import ScoreTerms
from keras_diet.types import Tensor

RECOMPUTE = ("none", "attention", "block")


def call_recomputed(
    layer: keras.layers.Layer, *args: Any, function: Callable[..., Any] | None = None, **kwargs: Any
) -> Any:
    """Return `layer(*args, **kwargs)`, without keeping what is in between for the gradient.

    The layer runs a second time for the gradient. Both times it is a pure function of the tensors
    in its arguments, of its weights and of the states of its random generators, so dropout drops
    the same units. `keras.remat` alone draws new random numbers on TensorFlow, and on PyTorch if
    the layer has a seed.

    Args:
        layer: A built layer.
        *args: Arguments of its call: nests of tensors, `ScoreTerms` and other values.
        function: A function that is called instead of the layer and reads its weights. Defaults to
            `None`, which means the layer.
        **kwargs: The same, by name.

    Raises:
        ValueError: If the layer adds a loss or changes its weights, as batch normalization does.
            Both would be lost. On TensorFlow, if an `attention_hook` is given. TensorFlow finds
            gradients of arguments only, so it would lose the gradients of what the hook reads.
    """
    _check_hook(kwargs.get("attention_hook"))
    arguments = (args, kwargs)
    tensors: dict[int, Any] = {}
    _map_tensors(lambda tensor: tensors.setdefault(id(tensor), tensor), arguments)
    # Gradients are found for these. Whole numbers and masks are constants.
    given = [each for each in tensors.values() if keras.backend.is_float_dtype(each.dtype)]
    weights, seeds = _weights_and_seeds([layer, *_bias_layers(arguments)])
    all_seeds = _with_global_seed(seeds)
    with autocast_disabled():
        values = [_backend.as_tensor(weight.value) for weight in weights]
        # Copies, because the next call changes the states before this call is computed again.
        states = [ops.copy(seed.value) for seed in all_seeds]

    def compute(*values):
        new_tensors = dict(zip(map(id, given), values, strict=False))
        mapping = list(zip(weights, values[len(given) :], strict=True))
        new_args, new_kwargs = _map_tensors(lambda x: new_tensors.get(id(x), x), arguments)
        used_seeds = _with_global_seed(seeds)
        mapping += zip(used_seeds, states, strict=True)
        # The scope converts weights to their dtype, and the layer casts them to its compute dtype.
        # On PyTorch these are the tensors of the caller, who sees their masks again by then.
        with (
            keras_masks_removed(*values),
            autocast_disabled(),
            keras.StatelessScope(mapping, collect_losses=True) as scope,
        ):
            before = [scope.get_current_value(weight) for weight in weights]
            outputs = (function or layer)(*new_args, **new_kwargs)
        after = [scope.get_current_value(weight) for weight in weights]
        _check_is_pure(layer, scope.losses, any(map(operator.is_not, before, after)))
        return outputs, [scope.get_current_value(seed) for seed in used_seeds]

    outputs, new_states = _backend.remat(compute)(*given, *values)
    for seed, state in zip(all_seeds, new_states, strict=True):
        seed.assign(state)
    return outputs


def call_in_chunks(
    layer: keras.layers.Layer, inputs: Any, num_chunks: int, function: Callable[..., Any]
) -> Tensor:
    """Return the rows of `function(inputs)`, computed part by part, and again for the gradient.

    Only one part at a time is in memory.

    Args:
        layer: The layer whose weights and random generators the function reads.
        inputs: A nest of tensors with the same number of rows.
        num_chunks: int. The number of parts.
        function: A function of some rows of the inputs.
    """
    size = ops.shape(tree.flatten(inputs)[0])[0]
    number = min(num_chunks, size) if isinstance(size, int) else num_chunks

    def call(start, end):
        rows = tree.map_structure(lambda array: array[start:end], inputs)
        return call_recomputed(layer, rows, function=function)

    if keras.backend.backend() != "jax":
        starts = [size * i // number for i in range(number + 1)]
        return ops.concatenate(list(itertools.starmap(call, itertools.pairwise(starts))))

    # The compiler would compute parts at the same time. The steps of a loop are in order.
    weights, seeds = _weights_and_seeds([layer])
    with autocast_disabled():
        values = [(weight, weight.value) for weight in weights]

        def step(states, rows):
            with keras.StatelessScope([*values, *zip(seeds, states, strict=True)]):
                outputs = call_recomputed(layer, rows, function=function)
                return [seed.value for seed in seeds], outputs

        end = size - size % number
        chunks = tree.map_structure(
            lambda array: ops.reshape(array[:end], (number, -1, *array.shape[1:])), inputs
        )
        states, outputs = ops.scan(step, [seed.value for seed in seeds], chunks, number)
        for seed, state in zip(seeds, states, strict=True):
            seed.assign(state)
    outputs = ops.reshape(outputs, (end, *outputs.shape[2:]))
    return outputs if end == size else ops.concatenate([outputs, call(end, size)])


def _weights_and_seeds(layers):
    """Return the weights of layers, and the states of their random generators."""
    weights = _unique(weight for layer in layers for weight in layer.weights)
    variables = _unique(variable for layer in layers for variable in layer.variables)
    # Layers count their random generators as variables, but not as weights.
    kept = {id(weight) for weight in weights}
    return weights, [variable for variable in variables if id(variable) not in kept]


def _with_global_seed(seeds):
    """Add the state from which Keras draws without a seed generator. JAX refuses such draws.

    Keras has one for each thread, and on a GPU PyTorch computes gradients in another thread. A
    replica of TensorFlow is a thread in which no variable can be made, so it refuses such draws.
    """
    has_none = keras.backend.backend() == "jax" or _backend.replica_context() is not None
    return seeds if has_none else [*seeds, global_seed()]


def _check_hook(attention_hook):
    if attention_hook is not None and keras.backend.backend() == "tensorflow":
        raise ValueError(
            "With `recompute`, TensorFlow would lose the gradients of what an `attention_hook` of "
            f"the call reads. Received: attention_hook={attention_hook!r}. Return the hook from "
            "`attention_hook()` of an attention layer, or pass recompute='none'."
        )


def _check_is_pure(layer, losses, changes_weights):
    effects = ["adds a loss"] * bool(losses) + ["changes its weights"] * changes_weights
    if effects:
        raise ValueError(
            "`recompute` must be 'none' for layers that add losses or change their weights in a "
            f"call, because both would be lost. Received: {layer.name!r}, which "
            f"{' and '.join(effects)}."
        )


def _map_tensors(function: Callable[[Any], Any], arguments: Any) -> Any:
    """Apply a function to all tensors of a nest, also to those inside of `ScoreTerms`."""

    def map_leaf(leaf):
        if isinstance(leaf, ScoreTerms):
            return leaf.replace(**_map_tensors(function, dict(vars(leaf))))
        return function(leaf) if ops.is_tensor(leaf) else leaf

    return tree.map_structure(map_leaf, arguments)


def _bias_layers(arguments):
    terms = [leaf for leaf in tree.flatten(arguments) if isinstance(leaf, ScoreTerms)]
    return [each.bias for each in terms if each.has_bias_layer]


def _unique(items):
    return list({id(item): item for item in items}.values())
