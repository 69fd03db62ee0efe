"""Gradients of several batches for one step, against one large batch."""

import keras
import numpy as np
import pytest

from keras_diet.training import AccumulatedSteps, WarmupLinearDecay

STEPS, PARTS = 5, 3


def trained_weights(optimizer, batch_size, rng):
    """Return the weights of a small model after training on the same examples in order."""
    x, y = rng.normal(size=(STEPS * PARTS * 2, 7)), rng.normal(size=(STEPS * PARTS * 2, 1))
    model = keras.Sequential([keras.Input((7,)), keras.layers.Dense(3, "tanh")])
    model.add(keras.layers.Dense(1))
    starts = np.random.default_rng(5)
    model.set_weights([starts.normal(size=weight.shape) for weight in model.weights])
    model.compile(optimizer, "mse")
    model.fit(x, y, batch_size=batch_size, shuffle=False, verbose=0)
    return model.get_weights()


def optimizer_of(cls, schedule, parts):
    return cls(schedule, weight_decay=0.3, gradient_accumulation_steps=parts)


@pytest.mark.parametrize("cls", [keras.optimizers.AdamW, keras.optimizers.Lamb])
def test_it_trains_like_a_large_batch(cls):
    # Each step has another learning rate.
    schedule = WarmupLinearDecay(0.2, STEPS, warmup_proportion=0.4)
    large, small, without = (
        trained_weights(optimizer_of(cls, *options), size, np.random.default_rng(7))
        for options, size in (
            ((schedule, None), 2 * PARTS),
            ((AccumulatedSteps(schedule, PARTS), PARTS), 2),
            ((schedule, PARTS), 2),
        )
    )
    for one, other, wrong in zip(small, large, without, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
        assert np.abs(wrong - other).max() > 1e-2


def test_rates_of_batches():
    schedule = WarmupLinearDecay(0.2, 7, warmup_proportion=0.3)
    accumulated = AccumulatedSteps(schedule, 3)
    found = [float(accumulated(batch)) for batch in range(9)]
    np.testing.assert_allclose(found, np.repeat([float(schedule(i)) for i in range(3)], 3))


@pytest.mark.any_backend
def test_it_is_saved():
    accumulated = AccumulatedSteps(WarmupLinearDecay(0.2, 7, warmup_proportion=0.3), 3)
    optimizer = keras.optimizers.AdamW(accumulated, gradient_accumulation_steps=3)
    config = keras.saving.serialize_keras_object(optimizer)
    copy = keras.saving.deserialize_keras_object(config)._learning_rate
    assert copy.gradient_accumulation_steps == 3
    assert copy.schedule.get_config() == accumulated.schedule.get_config()
    assert float(copy(4)) == float(accumulated(4))


@pytest.mark.any_backend
@pytest.mark.parametrize("steps", [0, -2, 1.5, True, "2"])
def test_impossible_numbers_of_batches(steps):
    with pytest.raises(ValueError, match="`gradient_accumulation_steps` must be a positive int"):
        AccumulatedSteps(WarmupLinearDecay(0.2, 7), steps)


@pytest.mark.any_backend
def test_a_rate_is_no_schedule():
    with pytest.raises(ValueError, match=r"`schedule` must be .* Received: 0.1"):
        AccumulatedSteps(0.1, 2)
