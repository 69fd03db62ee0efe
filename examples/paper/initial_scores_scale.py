"""Scale the first positional scores of a model, for `initial_scores.py`."""

import math
from typing import Any

import numpy as np

from keras_diet import analysis, layers
from keras_diet._backend import float32_array
from keras_diet.analysis.learned_scores import encoder_and_input, input_positions
from keras_diet.layers.position.sinusoids import Sinusoids

RANKS = ("8", "16", "32", "64", "128")
# Each row has a position encoding and other options of the example.
# The factors of "input, P" and "sinusoidal" multiply the positions, not the scores.
ROWS: dict[str, tuple[str, ...]] = {
    **{f"diet_abs, rank {rank}": ("diet_abs", "--rank", rank) for rank in RANKS},
    **{name: (name,) for name in ("diet_rel", "t5", "tupe_abs", "fire", "input")},
    "input, P": ("input",),
    **{name: (name,) for name in ("sinusoidal", "none", "alibi", "kerple", "sandwich", "rotary")},
    **{name: (name,) for name in ("shaw", "transformer_xl")},
}
MASKED = ", document masks"
# The same rows with segments or masks of the documents in a sequence.
ROWS |= {
    f"{row}, segments {place}": (*ROWS[row], "--document-segments", "--segment-encoding", value)
    for row in ("diet_abs, rank 32", "diet_rel", "input")
    for place, value in (("at the input", "input"), ("per head", "per-head"))
}
WITH_MASKS = "diet_abs, rank 32", "diet_rel", "t5", "tupe_abs", "input", "none", "alibi", "rotary"
ROWS |= {row + MASKED: (*ROWS[row], "--document-masks") for row in WITH_MASKS}
# The names of the parameters that a bias layer is linear in, or of two factors.
LINEAR = {
    "RelativePositionBias": ("relative_embedding",),
    "BucketedRelativePositionBias": ("bucket_embedding",),
    "FirePositionBias": ("output_kernel", "output_bias"),
}
FACTORS = {
    "AbsolutePositionBias": ("query_embedding", "key_embedding"),
    "UntiedPositionBias": ("query_kernel", "key_kernel"),
}


def scaled_sinusoids(run):
    """Register sinusoids times a factor, and return their name."""
    factor = 1.0 if run["stddev"] is None else run["stddev"]

    class ScaledSinusoids(Sinusoids):
        def call(self, inputs, start_index=0):
            return factor * super().call(inputs, start_index)

    layers.register_position_encoding(
        "scaled_sinusoids",
        layers.PositionEncoding(
            embedding=lambda dtype, name: ScaledSinusoids(dtype="float32", name=name)
        ),
    )
    return "scaled_sinusoids"


def scale(backbone: Any, run: dict[str, Any]) -> float | None:
    """Multiply parameters so that the first positional scores have `run["stddev"]`.

    Returns:
        Their standard deviation in the first layer, or `None` if they depend on the tokens.
    """
    if ROWS[run["row"]][0] in ("none", "rotary", "shaw", "transformer_xl"):
        return None
    found = stddev_of_scores(backbone)
    if run["stddev"] is None or run["row"] == "sinusoidal":
        return found
    if run["row"] == "input, P":
        multiply(backbone.input_encoding.position_embedding.trainable_variables, run["stddev"])
    elif ROWS[run["row"]][0] == "input":
        factor = math.sqrt(run["stddev"] / found)
        for block in backbone.encoder.transformer_layers:
            attention = block.self_attention
            multiply([attention.query_dense.kernel, attention.key_dense.kernel], factor)
    else:
        # A stack has a bias for each layer, or one for all of them.
        for index, bias in enumerate(backbone.encoder.position_biases):
            kind, factor = type(bias).__name__, run["stddev"] / stddev_of_scores(backbone, index)
            multiply([getattr(bias, name) for name in LINEAR.get(kind, ())], factor)
            multiply([getattr(bias, name) for name in FACTORS.get(kind, ())], math.sqrt(factor))
    return stddev_of_scores(backbone)


def stddev_of_scores(backbone: Any, layer: int = 0) -> float:
    """Return the standard deviation of the positional scores of a layer, without `[CLS]`."""
    scores = analysis.position_scores(backbone)[layer][:, 1:, 1:]
    encoding = backbone.input_encoding
    if encoding is not None and encoding.position_embedding is not None:
        positions = input_positions(*encoder_and_input(backbone), backbone.max_sequence_length)
        # The first normalization divides tokens and positions by the root of this sum.
        tokens = float32_array(backbone.token_embedding.embeddings)
        scores = scores / (np.square(positions).mean() + np.square(tokens).mean())
    return float((scores - scores.mean(-1, keepdims=True)).std())


def multiply(variables, factor):
    for variable in variables:
        variable.assign(factor * variable)
