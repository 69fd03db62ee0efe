import keras
import numpy as np
import pytest

from keras_diet import pretraining
from keras_diet.training import WarmupLinearDecay


def rates(schedule, steps):
    return [float(schedule(step)) for step in steps]


def test_rises_to_the_peak_and_falls_to_zero():
    schedule = WarmupLinearDecay(6.0, total_steps=10, warmup_proportion=0.4)
    expected = [1.5, 3.0, 4.5, 6.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0, 0.0]
    np.testing.assert_allclose(rates(schedule, range(12)), expected, rtol=1e-6)


def test_without_warmup_it_only_falls():
    schedule = WarmupLinearDecay(5.0, total_steps=5, warmup_proportion=0.0)
    np.testing.assert_allclose(rates(schedule, range(6)), [5, 4, 3, 2, 1, 0], rtol=1e-6)


@pytest.mark.any_backend
def test_table_7_of_the_paper():
    schedule = WarmupLinearDecay(0.0018, total_steps=500_000)
    assert schedule.warmup_steps == 12_500
    steps = [0, 6_249, 12_499, 256_250, 499_999]
    expected = [0.0018 / 12_500, 0.0009, 0.0018, 0.0009, 0.0018 / 487_500]
    np.testing.assert_allclose(rates(schedule, steps), expected, rtol=1e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "total_steps, proportion, warmup_steps",
    # The nearest integer, and an even one in the middle of two, as Python rounds.
    [(26, 0.1, 3), (24, 0.1, 2), (10, 0.25, 2), (10, 0.35, 4), (10, 0.04, 0), (10, 0.06, 1)],
)
def test_warmup_steps_are_rounded(total_steps, proportion, warmup_steps):
    schedule = WarmupLinearDecay(3.0, total_steps, warmup_proportion=proportion)
    assert schedule.warmup_steps == warmup_steps
    last = max(warmup_steps - 1, 0)
    expected = [3.0, 3.0 * (total_steps - last - 1) / (total_steps - warmup_steps)]
    np.testing.assert_allclose(rates(schedule, [last, last + 1]), expected, rtol=1e-6)


@pytest.mark.any_backend
def test_last_step_is_never_part_of_the_warmup():
    schedule = WarmupLinearDecay(6.0, 7, warmup_proportion=0.99)
    expected = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 6.0, 0.0]
    np.testing.assert_allclose(rates(schedule, range(8)), expected, rtol=1e-6)


@pytest.mark.any_backend
def test_a_single_step_has_the_peak_rate():
    assert rates(WarmupLinearDecay(3.0, 1, warmup_proportion=0.99), [0, 1]) == [3.0, 0.0]


@pytest.mark.any_backend
def test_config_round_trip():
    schedule = WarmupLinearDecay(0.5, 40, warmup_proportion=0.3, name="mine")
    config = keras.saving.serialize_keras_object(schedule)
    assert config["registered_name"] == "keras_diet>WarmupLinearDecay"
    restored = keras.saving.deserialize_keras_object(config)
    assert restored.get_config() == schedule.get_config()
    assert rates(restored, range(41)) == rates(schedule, range(41))


@pytest.mark.any_backend
def test_the_old_import_path_works():
    assert pretraining.WarmupLinearDecay is WarmupLinearDecay
    assert "WarmupLinearDecay" in pretraining.__all__


def test_optimizer_follows_it():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.layers[0].kernel.assign([[0.0]])
    schedule = WarmupLinearDecay(4.0, total_steps=4, warmup_proportion=0.5)
    model.compile(keras.optimizers.SGD(schedule), loss=lambda y, prediction: -prediction)
    # The gradient is -1 in each step, so the weight is the sum of the rates 2, 4, 4, 2.
    model.fit(np.ones((4, 1)), np.ones((4, 1)), batch_size=1, verbose=0)
    np.testing.assert_allclose(model.layers[0].kernel, [[12.0]], rtol=1e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "name, value",
    [
        ("peak_learning_rate", 0.0),
        ("peak_learning_rate", float("inf")),
        ("peak_learning_rate", "0.1"),
        ("total_steps", 0),
        ("total_steps", 10.0),
        ("warmup_proportion", 1.0),
        ("warmup_proportion", -0.1),
        ("warmup_proportion", None),
    ],
)
def test_bad_arguments(name, value):
    arguments = {"peak_learning_rate": 0.1, "total_steps": 10, "warmup_proportion": 0.1}
    with pytest.raises(ValueError, match=f"`{name}` must .*{value!r}"):
        WarmupLinearDecay(**{**arguments, name: value})
