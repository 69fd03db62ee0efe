"""`recompute` of the backbones: it is saved, and a step of training has the same result."""

import keras
import numpy as np
import pytest

from keras_diet.models import DietBertBackbone, DietTransformerBackbone
from tests.helpers import to_numpy
from tests.models import tiny
from tests.models.diet_transformer import tiny as translation

FAMILIES = {
    DietBertBackbone: (tiny.tiny_backbone, tiny.random_inputs),
    DietTransformerBackbone: (translation.tiny_backbone, translation.random_inputs),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("family", FAMILIES)
def test_configuration(family):
    make, _ = FAMILIES[family]
    assert make().recompute == "none"
    backbone = make(recompute="attention")
    assert family.from_config(backbone.get_config()).recompute == "attention"
    stacks = [backbone.encoder, getattr(backbone, "decoder", backbone.encoder)]
    assert [stack.recompute for stack in stacks] == ["attention"] * 2
    with pytest.raises(ValueError, match=r"`recompute` must be one of 'none'.*'all'"):
        make(recompute="all")


@pytest.mark.parametrize(
    "family",
    [DietBertBackbone, pytest.param(DietTransformerBackbone, marks=pytest.mark.any_backend)],
)
def test_training_has_the_same_result(rng, family):
    """Weights after two steps of `train_on_batch` with dropout."""
    make, make_inputs = FAMILIES[family]
    inputs, found = make_inputs(rng), []
    for recompute in ("none", "block"):
        backbone = make(recompute=recompute, dropout=0.3, num_layers=1)
        values = np.random.default_rng(5)
        for variable in backbone.variables:
            is_state = "seed_generator" in variable.path
            shape = variable.shape
            variable.assign([11, 0] if is_state else values.normal(scale=0.3, size=shape))
        keras.utils.set_random_seed(7)
        symbolic = {name: keras.KerasTensor(x.shape, x.dtype) for name, x in inputs.items()}
        targets = {
            name: values.normal(size=output.shape).astype("float32")
            for name, output in backbone.compute_output_spec(symbolic).items()
        }
        backbone.compile(
            keras.optimizers.SGD(0.1), "mse", jit_compile=keras.backend.backend() == "jax"
        )
        losses = [backbone.train_on_batch(inputs, targets) for _ in range(2)]
        found.append([*losses, *map(to_numpy, backbone.trainable_weights)])
    for expected, actual in zip(*found, strict=True):
        np.testing.assert_allclose(actual, expected, 1e-5, 1e-6)
