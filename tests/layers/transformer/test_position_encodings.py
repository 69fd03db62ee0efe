"""What `tests/models/test_table_6.py` does not say of encodings, and custom encodings."""

import re

import keras
import numpy as np
import pytest

from keras_diet.layers import (
    DietDecoder,
    DietEncoder,
    PositionEncoding,
    register_position_encoding,
)
from keras_diet.layers.position.input_encoding import SINUSOIDAL, make_input_encoding
from keras_diet.layers.transformer.position_encodings import (
    POSITION_ENCODINGS,
    find_position_encoding,
)
from tests import reference
from tests.helpers import assert_close, assert_weights_start_differently, to_numpy
from tests.layers.diet_encoders import Slopes

pytestmark = pytest.mark.any_backend
PROJECTABLE = ["diet_abs", "input", "diet_abs_input", "sinusoidal", "none"]


def test_sharing_is_that_of_the_table_of_the_docstring():
    rows = re.findall(r'^ *\| (`"[^|]*) \|.*\| ?([^|]*) \|$', DietEncoder.__doc__, re.MULTILINE)
    found = {
        name: tuple(modes.split(", ")) if modes else ()
        for names, modes in rows
        for name in re.findall(r'"(\w+)"', names)
    }
    assert found == {name: each.sharing_modes for name, each in POSITION_ENCODINGS.items()}


def test_encodings_with_linformer():
    takes = [name for name, each in POSITION_ENCODINGS.items() if each.takes("projection_dim")]
    assert takes == PROJECTABLE


@pytest.mark.parametrize("max_distance", [None, 19])
def test_max_distance(max_distance):
    def built(name):
        encoder = DietEncoder(1, 3, 11, name, max_distance=max_distance)
        encoder.build((2, 5, 18))
        return encoder

    assert built("t5").position_biases[0].max_distance == (max_distance or 128)
    assert built("tupe_rel").position_biases[0].max_distance == max_distance
    assert built("log_cpb").position_biases[0].max_distance == (max_distance or 512)
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
    encoding = make_input_encoding(SINUSOIDAL, 300, None, "bfloat16")
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


def test_a_function_gets_the_arguments_that_it_names(register):
    received = []

    def bias(num_heads, key_dim, max_length, is_causal, max_distance=4, **kwargs):
        received.append((num_heads, key_dim, max_length, is_causal, max_distance, set(kwargs)))
        return Slopes(num_heads)

    name = register(bias=bias, sharing_modes=("layer-wise", "head-wise"))
    arguments = {"position_encoding": name, "max_sequence_length": 7}
    DietEncoder(1, 3, 11, **arguments).build((2, 5, 18))
    DietEncoder(1, 3, 11, **arguments, sharing="head-wise", max_distance=5).build((2, 5, 18))
    DietDecoder(1, 3, 11, **arguments, max_distance=5).build((2, 5, 18))
    layer, of_heads = {"dtype", "name"}, {"dtype", "name", "share_heads"}
    expected = [(False, 4, layer), (False, 5, of_heads), (True, 5, layer), (False, 5, layer)]
    assert received == [(3, 6, 7, *each) for each in expected]
    with pytest.raises(ValueError, match=r"`rank` is not supported.*'custom'"):
        DietEncoder(1, 3, 11, name, rank=2)


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
