"""Learning rate schedules."""

import keras
import numpy as np
import pytest

from keras_diet.training import AccumulatedSteps, InverseSquareRootDecay, WarmupLinearDecay

STEPS, PARTS = 5, 3
# Each step has another learning rate.
SCHEDULE = WarmupLinearDecay(0.2, STEPS, warmup_proportion=0.4)


def rates(schedule, steps):
    return [float(schedule(step)) for step in steps]


@pytest.mark.parametrize(
    "schedule, steps, expected",
    [
        (WarmupLinearDecay(6.0, 10, 0.4), range(12), [1.5, 3, 4.5, 6, 6, 5, 4, 3, 2, 1, 0, 0]),
        (WarmupLinearDecay(5.0, 5, 0.0), range(6), [5, 4, 3, 2, 1, 0]),
        # The last step is never part of the warm-up.
        (WarmupLinearDecay(6.0, 7, 0.99), range(8), [1, 2, 3, 4, 5, 6, 6, 0]),
        (WarmupLinearDecay(3.0, 1, 0.99), range(2), [3, 0]),
        # Table 7 of the paper.
        (
            WarmupLinearDecay(0.0018, 500_000),
            [0, 6_249, 12_499, 256_250, 499_999],
            [0.0018 / 12_500, 0.0009, 0.0018, 0.0009, 0.0018 / 487_500],
        ),
        (
            InverseSquareRootDecay(64, 100, 3.0),
            [0, 4, 99, 399],
            [3 / 8 / 1000, 5 * 3 / 8 / 1000, 3 / 8 / 10, 3 / 8 / 20],
        ),
        # The defaults are those of `transformer_base`.
        (
            InverseSquareRootDecay(512),
            [7998, 7999, 8000],
            [512**-0.5 * 2 * rate for rate in (7999 * 8000**-1.5, 8000**-0.5, 8001**-0.5)],
        ),
        (AccumulatedSteps(WarmupLinearDecay(4.0, 4, 0.5), 3), range(7), [2] * 3 + [4] * 4),
    ],
)
def test_rates(schedule, steps, expected):
    np.testing.assert_allclose(rates(schedule, steps), expected, rtol=1e-5)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "total_steps, proportion, warmup_steps",
    # The nearest integer, and an even one in the middle of two, as Python rounds.
    [(26, 0.1, 3), (24, 0.1, 2), (10, 0.25, 2), (10, 0.35, 4), (10, 0.04, 0), (10, 0.06, 1)],
)
def test_warmup_steps_are_rounded(total_steps, proportion, warmup_steps):
    assert WarmupLinearDecay(3.0, total_steps, proportion).warmup_steps == warmup_steps


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "schedule",
    [
        WarmupLinearDecay(0.5, 40, warmup_proportion=0.3, name="mine"),
        InverseSquareRootDecay(hidden_dim=33, warmup_steps=7, scale=0.5, name="mine"),
        AccumulatedSteps(SCHEDULE, 3),
    ],
)
def test_an_optimizer_is_saved_with_its_schedule(schedule):
    config = keras.saving.serialize_keras_object(schedule)
    assert config["registered_name"] == f"keras_diet>{type(schedule).__name__}"
    copy = keras.saving.deserialize_keras_object(config)
    assert copy.get_config() == schedule.get_config()
    assert rates(copy, range(41)) == rates(schedule, range(41))


def trained_weights(schedule, parts, batch_size):
    """Return the weights of a small model after training on the same examples in order."""
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(STEPS * PARTS * 2, 7)), rng.normal(size=(STEPS * PARTS * 2, 1))
    model = keras.Sequential([keras.Input((7,)), keras.layers.Dense(3, "tanh")])
    model.add(keras.layers.Dense(1))
    model.set_weights([rng.normal(size=weight.shape) for weight in model.weights])
    optimizer = keras.optimizers.AdamW(
        schedule, weight_decay=0.3, gradient_accumulation_steps=parts
    )
    model.compile(optimizer, "mse")
    model.fit(x, y, batch_size=batch_size, shuffle=False, verbose=0)
    return model.get_weights()


@pytest.mark.any_backend
def test_accumulated_batches_train_like_a_large_batch():
    large = trained_weights(SCHEDULE, None, 2 * PARTS)
    small = trained_weights(AccumulatedSteps(SCHEDULE, PARTS), PARTS, 2)
    without = trained_weights(SCHEDULE, PARTS, 2)
    for one, other, wrong in zip(small, large, without, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        assert np.abs(wrong - other).max() > 1e-2


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: WarmupLinearDecay(0.0, 10), "`peak_learning_rate` must be a positive.*=0.0"),
        (lambda: WarmupLinearDecay(0.1, 0), "`total_steps` must be a positive integer.*=0"),
        (lambda: WarmupLinearDecay(0.1, 10, 1.5), r"`warmup_proportion` must be .*=1\.5"),
        (lambda: InverseSquareRootDecay(0), "`hidden_dim` must be a positive integer.*=0"),
        (lambda: InverseSquareRootDecay(5, 0), "`warmup_steps` must be a positive integer.*=0"),
        (lambda: InverseSquareRootDecay(5, 7, 0), "`scale` must be a positive, finite.*=0"),
        (lambda: AccumulatedSteps(SCHEDULE, 0), "`gradient_accumulation_steps` must .*=0"),
    ],
)
def test_impossible_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
