"""What `tests/models/test_table_6.py` does not say of encodings, and custom encodings."""

import keras
import numpy as np
import pytest

from keras_diet.layers import DietDecoder, DietEncoder, PositionEncoding, register_position_encoding
from keras_diet.layers.position.input_encoding import SINUSOIDAL, make_input_encoding
from keras_diet.layers.position.position_encoding import SHARING_MODES, EncoderSizes
from keras_diet.layers.transformer.position_encodings import (
    POSITION_ENCODINGS,
    find_position_encoding,
)
from tests import reference
from tests.helpers import assert_close, assert_weights_start_differently, to_numpy
from tests.layers.diet_encoders import Slopes

pytestmark = pytest.mark.any_backend
# The ways of sharing of encodings that do not have all of them.
SHARING = {
    "shaw": ("head-wise",),
    "alibi": ("layer-wise",),
    "sandwich": ("layer-wise",),
    "transformer_xl": ("none",),
    **dict.fromkeys(("input", "sinusoidal", "rotary", "none"), ()),
}
PROJECTABLE = ("diet_abs", "diet_abs_input", "input", "sinusoidal", "none")


def test_sharing_and_projection():
    for name, encoding in POSITION_ENCODINGS.items():
        assert set(encoding.sharing_modes) == set(SHARING.get(name, SHARING_MODES))
        assert encoding.allows_projection == (name in PROJECTABLE)


@pytest.mark.parametrize("max_distance", [None, 19])
def test_max_distance(max_distance):
    def built(name):
        encoder = DietEncoder(1, 3, 11, name, max_distance=max_distance)
        encoder.build((2, 5, 18))
        return encoder

    assert built("t5").position_biases[0].max_distance == (max_distance or 128)
    assert built("tupe_rel").position_biases[0].max_distance == max_distance
    attention = built("shaw").transformer_layers[0].self_attention
    assert attention.max_distance == (max_distance or 1024)


@pytest.mark.usefixtures("keras_initializers")
@pytest.mark.parametrize("sharing", ["none", "head-wise", "layer-wise"])
@pytest.mark.parametrize(
    "name, rank",
    [("diet_rel", None), ("diet_abs", 3), ("diet_abs", 60), ("diet_abs_input", None)],
)
def test_standard_deviation_of_the_first_scores(name, rank, sharing):
    keras.utils.set_random_seed(7)
    decoder = DietDecoder(
        *(2, 6, 11, name, rank, sharing), max_sequence_length=400, initial_score_stddev=0.7
    )
    decoder.build((2, 5, 18))
    biases = [*decoder.position_biases, *decoder.cross_position_biases]
    assert len(biases) == (2 if sharing == "layer-wise" else 4)
    for bias in biases:
        if len(bias.weights) > 1:
            assert_weights_start_differently(bias)
        scores = to_numpy(bias(np.zeros((1, 400, 5))))
        # The standard deviation of another rank differs by 30 % or more.
        assert scores.std() == pytest.approx(0.7, rel=0.12)


def test_sines_are_not_computed_in_half_precision():
    sizes = EncoderSizes(1, 3, 6, 300)
    encoding = make_input_encoding(SINUSOIDAL, sizes, None, "bfloat16")
    expected = reference.sinusoidal_positions(300, 6)[None]
    # The steps of bfloat16 are 1/256 near one, and 2 above 256.
    assert_close(encoding(np.zeros((1, 300, 6))), expected, 1e-2)


# === Custom encodings ===


def test_names_that_are_registered_again(registry):
    """A custom name can be registered again, a name of the library cannot."""
    for encoding in (PositionEncoding(), PositionEncoding()):
        register_position_encoding("custom", encoding)
        assert find_position_encoding("custom") is encoding
    with pytest.raises(ValueError, match=r"`name` is taken.*'t5'"):
        register_position_encoding("t5", PositionEncoding())
    with pytest.raises(ValueError, match=r"'diet_abs',.*='rope'\. RoPE is 'rotary'.* 'input'\."):
        find_position_encoding("rope")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"bias": Slopes}, "`sharing_modes` must be a tuple.*'head-wise'"),
        ({"bias": Slopes, "sharing_modes": ("layerwise",)}, "`sharing_modes` must be a tuple"),
        ({"sharing_modes": ("head-wise", "layer-wise")}, "`sharing_modes` must be a tuple"),
        ({"scale": len, "attention": Slopes}, "`scale` is only used without `attention`"),
    ],
)
def test_encodings_that_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        PositionEncoding(**arguments)
