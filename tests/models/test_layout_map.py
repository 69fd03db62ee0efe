"""How `get_layout_map` splits each kind of weight: the axis of the mesh for each of its axes."""

import re

import keras
import pytest

from keras_diet.models import DietBertBackbone, DietTransformerBackbone
from tests.models.diet_transformer import tiny as translation
from tests.models.tiny import tiny_backbone

DATA, MODEL = "rows", "columns"
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


def layout_map_of(cls):
    devices = [f"cpu:{i}" for i in range(6)]
    mesh = keras.distribution.DeviceMesh((2, 3), (DATA, MODEL), devices)
    return cls.get_layout_map(mesh, model_parallel_dim_name=MODEL, data_parallel_dim_name=DATA)


@pytest.fixture(scope="module")
def layout_map():
    return layout_map_of(DietBertBackbone)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "arguments",
    [
        {"position_encoding": "diet_abs"},
        {"position_encoding": "diet_rel"},
        {"position_encoding": "shaw"},
        {"position_encoding": "transformer_xl"},
        {"position_encoding": "tupe_rel"},
        {"position_encoding": "input", "segment_encoding": "input"},
        {"position_encoding": "input", "segment_encoding": "input", "projection_dim": 5},
    ],
    ids=lambda arguments: "-".join(map(str, arguments.values())),
)
def test_every_axis_of_every_weight(layout_map, arguments):
    check_every_axis(layout_map, tiny_backbone(**arguments), SPLIT, REPLICATED)


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


@pytest.mark.any_backend
@pytest.mark.parametrize("position_encoding", ["diet_rel", "diet_abs_input", "shaw", "sinusoidal"])
def test_every_axis_of_every_weight_for_translation(position_encoding):
    """Among them every kernel of cross-attention."""
    backbone = translation.tiny_backbone(position_encoding=position_encoding)
    layout_map = layout_map_of(DietTransformerBackbone)
    check_every_axis(layout_map, backbone, TRANSLATION_SPLIT, TRANSLATION_REPLICATED)
    kernels = [w.path for w in backbone.weights if re.search("cross_attention/.*kernel", w.path)]
    assert len(kernels) == 4 * 2
    assert all(layout_map[path] is not None for path in kernels)


def check_every_axis(layout_map, backbone, split, replicated):
    found = set()
    for weight in backbone.weights:
        patterns = [pattern for pattern in split if re.fullmatch(pattern, weight.path)]
        # Tasks put their name before the path of a weight.
        for path in (weight.path, f"masked_lm/{weight.path}"):
            layout = layout_map[path]
            if patterns:
                assert layout is not None, path
                assert tuple(layout.axes) == split[patterns[0]], path
                assert len(layout.axes) == len(weight.shape), path
            else:
                assert layout is None, path
                assert any(re.fullmatch(pattern, weight.path) for pattern in replicated), path
        found.update(patterns)
    assert found == set(split)
