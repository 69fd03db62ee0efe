"""Segments for a model that was pretrained without them."""

import keras
from keras import ops

from keras_diet import validation
from keras_diet._compat import flatten_layers
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.hub.rebuild import backbone_of, rebuild


def add_segments(
    model: keras.Model, num_segments: int = 2, segment_encoding: str = "per-head"
) -> keras.Model:
    """Return a copy of a model with a segment encoding that starts at zero.

    This is the "supplemental segment encoding" of appendix A of the paper. A model that was
    pretrained without segments gets segments for fine-tuning. With `"per-head"`, these are segment
    scores in each layer and head,

        A_ij <- A_ij + E_S[S(i), S(j)],    E_S = 0,

    and with `"input"`, as in BERT, segment embeddings that are added to the token embeddings,

        x_i <- x_i + G[S(i)],    G = 0.

    The paper does not state the initial values. With zeros, the outputs before training are the
    outputs of `model`. BERT's initial values, which are random, would change them.

    Args:
        model: A `DietBertBackbone` with `segment_encoding="none"`, or a task with one. It is not
            changed. If it is a backbone, build the task for fine-tuning from the copy.
        num_segments: int. Number of segments. Defaults to `2`.
        segment_encoding: `"per-head"` or `"input"`. Where the segments are added. Defaults to
            `"per-head"`.

    Returns:
        A model of the same class with this `segment_encoding`. It has the weights of `model` and
        zeros for the segments, and the same layers are frozen. A task is compiled in the same way
        with a new optimizer state, and has a copy of the preprocessor.

    Raises:
        ValueError: If `model` is not such a model, has segments already, has LoRA or quantized
            weights, or is compiled with functions that are not registered. With `"per-head"`, also
            if it has a `projection_dim`, because projected keys have no segments.

    Example:

    ```python
    pretrained = keras_diet.models.DietBertBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16, segment_encoding="none",
    )
    backbone = keras_diet.models.add_segments(pretrained)
    like_bert = keras_diet.models.add_segments(pretrained, segment_encoding="input")
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), appendix A
    """
    validation.positive_int("num_segments", num_segments)
    validation.choice("segment_encoding", segment_encoding, ("per-head", "input"))
    present = backbone_of(model, DietBertBackbone).segment_encoding
    if present != "none":
        raise ValueError(
            "`model` has segments already. Received: a model with "
            f"segment_encoding={present!r}. Pass a model with segment_encoding='none'."
        )
    extended = rebuild(
        model,
        {"segment_encoding": segment_encoding, "num_segments": num_segments},
        common_layers=_layers_without_segments,
    )
    added = {id(weight): weight for layer in _segment_layers(extended) for weight in layer.weights}
    for weight in added.values():
        weight.assign(ops.zeros(weight.shape))
    others = [weight for weight in extended.weights if id(weight) not in added]
    for new, old in zip(others, model.weights, strict=True):
        # JAX reuses the memory of weights when it trains them, so each model needs its own.
        new.assign(ops.copy(old))
    return extended


def _layers_without_segments(model: keras.Model) -> list[keras.layers.Layer]:
    added = {id(layer) for layer in _segment_layers(model)}
    return [layer for layer in flatten_layers(model) if id(layer) not in added]


def _segment_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Return the layers that a model has for its segments only."""
    backbone = backbone_of(model, DietBertBackbone)
    if backbone.segment_encoding == "per-head":
        return list(backbone.encoder.segment_biases)
    if backbone.segment_encoding == "none":
        return []
    encoding = backbone.input_encoding
    adds_positions = encoding.position_embedding is not None
    return (
        [encoding.segment_embedding] if adds_positions else [encoding, encoding.segment_embedding]
    )
