"""Segments for a model that was pretrained without them."""

import keras
from keras import ops

from keras_diet import validation
from keras_diet._keras import flatten_layers
from keras_diet.layers.position.segment_bias import SegmentBias
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone
from keras_diet.models.hub.rebuild import backbone_of, rebuild


def add_segments(model: keras.Model, num_segments: int = 2) -> keras.Model:
    """Return a copy of a model with segment scores in each head that start at zero.

    This is the "supplemental segment encoding" of appendix A of the paper. A model that was
    pretrained without segments gets segment scores `E_S` for fine-tuning,

        A_ij <- A_ij + E_S[S(i), S(j)],    E_S = 0,

    with one matrix for each layer and head. Before training, the outputs are the outputs of
    `model`.

    Args:
        model: A `DietBertBackbone` with `segment_encoding="none"`, or a task with one. It is not
            changed. If it is a backbone, build the task for fine-tuning from the copy.
        num_segments: int. Number of segments. Defaults to `2`.

    Returns:
        A model of the same class with `segment_encoding="per-head"`. It has the weights of `model`
        and zeros for the segments, and the same layers are frozen. A task is compiled in the same
        way with a new optimizer state, and has a copy of the preprocessor.

    Raises:
        ValueError: If `model` is not such a model, has segments already, has LoRA or quantized
            weights, or is compiled with functions that are not registered. Also if it has a
            `projection_dim`, because projected keys have no segments.

    Example:

    ```python
    pretrained = keras_diet.models.DietBertBackbone(
        vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=32, intermediate_dim=64,
        max_sequence_length=16, segment_encoding="none",
    )
    backbone = keras_diet.models.add_segments(pretrained)
    ```

    References:
     - [Chen et al., 2021](https://aclanthology.org/2021.emnlp-main.236/), appendix A
    """
    validation.positive_int("num_segments", num_segments)
    segment_encoding = backbone_of(model, DietBertBackbone).segment_encoding
    if segment_encoding != "none":
        raise ValueError(
            "`model` has segments already. Received: a model with "
            f"segment_encoding={segment_encoding!r}. Pass a model with segment_encoding='none'."
        )
    extended = rebuild(
        model,
        {"segment_encoding": "per-head", "num_segments": num_segments},
        common_layers=_layers_without_segments,
    )
    encoder = backbone_of(extended, DietBertBackbone).encoder
    added = [layer.segment_embedding for layer in encoder.segment_biases]
    for weight in added:
        weight.assign(ops.zeros(weight.shape))
    is_added = {id(weight) for weight in added}
    others = [weight for weight in extended.weights if id(weight) not in is_added]
    for new, old in zip(others, model.weights, strict=True):
        # JAX reuses the memory of weights when it trains them, so each model needs its own.
        new.assign(ops.copy(old))
    return extended


def _layers_without_segments(model: keras.Model) -> list[keras.layers.Layer]:
    return [layer for layer in flatten_layers(model) if not isinstance(layer, SegmentBias)]
