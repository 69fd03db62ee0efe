"""The learning rate schedule of the first Transformer."""

import keras
import pytest

from keras_diet.training import InverseSquareRootDecay


@pytest.mark.parametrize(
    "step, expected",
    [(0, 3 / 8 / 1000), (4, 5 * 3 / 8 / 1000), (99, 3 / 8 / 10), (399, 3 / 8 / 20)],
)
def test_rates(step, expected):
    schedule = InverseSquareRootDecay(hidden_dim=64, warmup_steps=100, scale=3.0)
    assert float(schedule(step)) == pytest.approx(expected, rel=1e-5)


def test_defaults_are_those_of_transformer_base():
    schedule = InverseSquareRootDecay(512)
    assert float(schedule(7999)) == pytest.approx(2 * (512 * 8000) ** -0.5, rel=1e-5)
    assert float(schedule(7998)) < float(schedule(7999)) > float(schedule(8000))


@pytest.mark.any_backend
def test_config():
    arguments = {"hidden_dim": 33, "warmup_steps": 7, "scale": 0.5, "name": "mine"}
    schedule = InverseSquareRootDecay(**arguments)
    restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert restored.get_config() == arguments


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["hidden_dim", "warmup_steps", "scale"])
def test_arguments_are_checked(name):
    with pytest.raises(ValueError, match=rf"`{name}` must be .* Received: {name}=0"):
        InverseSquareRootDecay(**{"hidden_dim": 5, name: 0})
