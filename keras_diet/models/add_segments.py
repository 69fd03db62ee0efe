"""Segments for a model that was pretrained without."""

from keras import ops

from keras_diet import validation
from keras_diet.models._rebuild import backbone_of, rebuild


def add_segments(model, num_segments=2):
    """Return a copy of a model that scores segments in each head, starting from zero.

    Appendix A of the paper, "supplemental segments": a model that was pretrained without segments
    gets segment scores `E_S` for fine-tuning,

        A_ij <- A_ij + E_S[S(i), S(j)],    E_S = 0,

    one matrix for each layer and head. Before training, all outputs are those of `model`.

    Args:
        model: A `DietBertBackbone` with `segment_encoding="none"`, or a task with one. It is not
            changed. Of a backbone, make the task of the fine-tuning afterwards.
        num_segments: int. Number of segments. Defaults to `2`.

    Returns:
        A model of the same class, with `segment_encoding="per-head"`, the weights of `model` and
        zeros for the segments, frozen where `model` is. A task is compiled as that is, with a new
        state of the optimizer, and has a copy of the preprocessor.

    Raises:
        ValueError: If `model` is no such model, has segments already, a `projection_dim` (projected
            keys have no segments), LoRA or quantized weights, or is compiled with functions that
            are not registered.

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
    backbone = backbone_of(model)
    if backbone.segment_encoding != "none":
        raise ValueError(
            "The model has segments already: `add_segments` is for one with "
            f"segment_encoding='none'. Received: segment_encoding={backbone.segment_encoding!r}"
        )
    extended = rebuild(model, segment_encoding="per-head", num_segments=num_segments)
    added = [layer.segment_embedding for layer in backbone_of(extended).encoder.segment_biases]
    for weight in added:
        weight.assign(ops.zeros(weight.shape))
    is_added = {id(weight) for weight in added}
    others = [weight for weight in extended.weights if id(weight) not in is_added]
    for new, old in zip(others, model.weights, strict=True):
        # JAX gives arrays away in training, and this one is in two models.
        new.assign(ops.copy(old))
    return extended
