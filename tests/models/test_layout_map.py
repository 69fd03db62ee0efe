"""How `get_layout_map` splits each kind of weight: the axis of the mesh for each of its axes."""

import re

import keras
import pytest

from keras_diet.models import DietBertBackbone, DietTransformerBackbone
from tests.models.diet_transformer import tiny as translation
from tests.models.tiny import tiny_backbone

DATA, MODEL = "rows", "columns"
ENCODINGS = ("diet_abs", "diet_rel", "shaw", "transformer_xl", "tupe_rel", "input")
TRANSLATION_ENCODINGS = ("diet_rel", "diet_abs_input", "shaw", "sinusoidal")
BLOCK = r"encoder/transformer_layer_\d+"
SPLIT = {
    "token_embedding/embeddings": (None, MODEL),
    rf"{BLOCK}/self_attention/(query|key|value|position)/kernel": (DATA, MODEL, None),
    rf"{BLOCK}/self_attention/(query|key|value)/bias": (MODEL, None),
    rf"{BLOCK}/self_attention/attention_output/kernel": (MODEL, None, DATA),
    rf"{BLOCK}/feedforward_intermediate_dense/kernel": (DATA, MODEL),
    rf"{BLOCK}/feedforward_intermediate_dense/bias": (MODEL,),
    rf"{BLOCK}/feedforward_output_dense/kernel": (MODEL, DATA),
    "pooled_dense/kernel": (DATA, MODEL),
    "pooled_dense/bias": (MODEL,),
}
# Every weight that is not split, so that a new kind of weight fails here.
REPLICATED = (
    rf"{BLOCK}/self_attention/attention_output/bias",
    rf"{BLOCK}/feedforward_output_dense/bias",
    r".*layer_norm/(gamma|beta)",
    r"encoder/(position|segment)_bias(_\d+)?/[\w/]+",
    r"input_encoding/(position|segment)_embedding/\w+",
    rf"{BLOCK}/self_attention/(relative_)?(key|value)_(projection|embedding)",
    rf"{BLOCK}/self_attention/(content|position)_bias",
)


# The same for both stacks and both kinds of attention, without a pooler.
TRANSLATION_SPLIT = {
    pattern.replace("encoder/", "(en|de)coder/").replace("self_", "(self|cross)_"): axes
    for pattern, axes in SPLIT.items()
    if "pooled" not in pattern
}
TRANSLATION_REPLICATED = (
    *(
        each.replace("encoder/", "(en|de)coder/").replace("self_", "(self|cross)_")
        for each in REPLICATED
    ),
    r"decoder/cross_position_bias(_\d+)?/[\w/]+",
    r"(en|de)coder_input_encoding/position_embedding/\w+",
)


FAMILIES = {
    DietBertBackbone: (tiny_backbone, SPLIT, REPLICATED),
    DietTransformerBackbone: (
        translation.tiny_backbone,
        TRANSLATION_SPLIT,
        TRANSLATION_REPLICATED,
    ),
}
AT_INPUT = {"position_encoding": "input", "segment_encoding": "input"}


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("cls", "arguments"),
    [
        *((DietBertBackbone, {"position_encoding": name}) for name in ENCODINGS),
        (DietBertBackbone, {**AT_INPUT, "projection_dim": 5}),
        *((DietTransformerBackbone, {"position_encoding": name}) for name in TRANSLATION_ENCODINGS),
    ],
)
def test_every_axis_of_every_weight(cls, arguments):
    make, split, replicated = FAMILIES[cls]
    mesh = keras.distribution.DeviceMesh((2, 3), (DATA, MODEL), [f"cpu:{i}" for i in range(6)])
    layout_map = cls.get_layout_map(
        mesh, model_parallel_dim_name=MODEL, data_parallel_dim_name=DATA
    )
    found = set()
    for weight in make(**arguments).weights:
        patterns = [pattern for pattern in split if re.fullmatch(pattern, weight.path)]
        # Tasks put their name before the path of a weight.
        for path in (weight.path, f"masked_lm/{weight.path}"):
            layout = layout_map[path]
            if patterns:
                assert tuple(layout.axes) == split[patterns[0]], path
                assert len(layout.axes) == len(weight.shape), path
            else:
                assert layout is None, path
                assert any(re.fullmatch(pattern, weight.path) for pattern in replicated), path
        found.update(patterns)
    # Among them the kernels of cross-attention.
    assert found == set(split)
