"""How `get_layout_map` splits each kind of weight: the axis of the mesh for each of its axes."""

import re

import keras
import pytest

from tests.models.diet_transformer import tiny as translation
from tests.models.tiny import AT_INPUT, tiny_backbone

pytestmark = pytest.mark.any_backend
DATA, MODEL = "rows", "columns"
ENCODINGS = ("diet_abs", "diet_rel", "shaw", "transformer_xl", "tupe_rel", "input")
TRANSLATION_ENCODINGS = ("diet_rel", "diet_abs_input", "shaw", "sinusoidal")
# Both stacks, and both kinds of attention.
BLOCK = r"(en|de)coder/transformer_layer_\d+"
ATTENTION = rf"{BLOCK}/(self|cross)_attention"
POOLER = {"pooled_dense/kernel": (DATA, MODEL), "pooled_dense/bias": (MODEL,)}
SPLIT = {
    "token_embedding/embeddings": (None, MODEL),
    rf"{ATTENTION}/(query|key|value|position)/kernel": (DATA, MODEL, None),
    rf"{ATTENTION}/(query|key|value)/bias": (MODEL, None),
    rf"{ATTENTION}/attention_output/kernel": (MODEL, None, DATA),
    rf"{BLOCK}/feedforward_(intermediate|gate)_dense/kernel": (DATA, MODEL),
    rf"{BLOCK}/feedforward_(intermediate|gate)_dense/bias": (MODEL,),
    rf"{BLOCK}/feedforward_output_dense/kernel": (MODEL, DATA),
    **POOLER,
}
# Every weight that is not split, so that a new kind of weight fails here.
REPLICATED = (
    rf"{ATTENTION}/attention_output/bias",
    rf"{BLOCK}/feedforward_output_dense/bias",
    r".*layer_norm/(gamma|beta)",
    r"(en|de)coder/((cross_)?position|segment)_bias(_\d+)?/[\w/]+",
    r"((en|de)coder_)?input_encoding/(position|segment)_embedding/\w+",
    rf"{ATTENTION}/(relative_)?(key|value)_(projection|embedding)",
    rf"{ATTENTION}/(content|position)_bias",
)


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        *((tiny_backbone, {"position_encoding": name}) for name in ENCODINGS),
        (tiny_backbone, {**AT_INPUT, "projection_dim": 5, "gated": True}),
        *((translation.tiny_backbone, {"position_encoding": n}) for n in TRANSLATION_ENCODINGS),
    ],
)
def test_every_axis_of_every_weight(make, arguments):
    backbone = make(**arguments)
    mesh = keras.distribution.DeviceMesh((2, 3), (DATA, MODEL), [f"cpu:{i}" for i in range(6)])
    layout_map = backbone.get_layout_map(
        mesh, model_parallel_dim_name=MODEL, data_parallel_dim_name=DATA
    )
    found = set()
    for weight in backbone.weights:
        patterns = [pattern for pattern in SPLIT if re.fullmatch(pattern, weight.path)]
        # Tasks put their name before the path of a weight.
        for path in (weight.path, f"masked_lm/{weight.path}"):
            layout = layout_map[path]
            if patterns:
                assert tuple(layout.axes) == SPLIT[patterns[0]], path
                assert len(layout.axes) == len(weight.shape), path
            else:
                assert layout is None, path
                assert any(re.fullmatch(pattern, weight.path) for pattern in REPLICATED), path
        found.update(patterns)
    # Translators have no pooler.
    assert found == set(SPLIT) - (set(POOLER) if make is translation.tiny_backbone else set())
