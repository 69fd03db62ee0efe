"""`DietTransformerSeq2SeqLM`: its logits, its loss, and training on pairs of texts."""

import keras
import numpy as np
import pytest

from keras_diet.models import DietTransformerSeq2SeqLM
from keras_diet.samplers import BeamSearchSampler
from tests import reference
from tests.helpers import assert_close, to_numpy
from tests.models.diet_transformer.pairs import SOURCES, TARGETS
from tests.models.diet_transformer.tiny import (
    random_inputs,
    tiny_backbone,
    tiny_task,
    tiny_translator,
)

BACKEND = keras.backend.backend()
any_backend = pytest.mark.any_backend


@any_backend
def test_logits_are_products_with_the_embeddings(rng):
    task = tiny_task()
    inputs = random_inputs(rng)
    hidden_states = to_numpy(task.backbone(inputs)["decoder_sequence_output"])
    embeddings = to_numpy(task.backbone.token_embedding.embeddings)
    assert_close(task(inputs), hidden_states @ embeddings.T)
    assert [w.path for w in task.weights] == [w.path for w in task.backbone.weights]


@any_backend
def test_defaults_of_compile():
    task = DietTransformerSeq2SeqLM(tiny_backbone())
    assert isinstance(task.sampler, BeamSearchSampler)
    assert isinstance(task.optimizer, keras.optimizers.Adam)
    assert float(task.optimizer.learning_rate) == pytest.approx(2e-5)
    assert isinstance(task.loss, keras.losses.SparseCategoricalCrossentropy)
    assert task.loss.reduction == "mean_with_sample_weight"
    assert task.loss.from_logits
    (metrics,) = [m for m in task.metrics if "compile" in m.name]
    assert metrics is not None
    assert not DietTransformerSeq2SeqLM(tiny_backbone(), compile=False).compiled
    with pytest.warns(UserWarning, match="logits"):
        task.compile(loss=keras.losses.SparseCategoricalCrossentropy())


def test_the_loss_is_the_mean_over_tokens(rng):
    task = tiny_task(num_layers=1)
    inputs = random_inputs(rng)
    labels = rng.integers(0, 31, (2, 7))
    weights = inputs["decoder_padding_mask"].astype("float32")
    assert weights.sum() == 12
    expected = reference.masked_lm_loss(to_numpy(task(inputs)), labels, weights)
    found = task.evaluate(inputs, labels, sample_weight=weights, verbose=0, return_dict=True)
    assert found["loss"] == pytest.approx(expected, rel=1e-5)
    accuracy = (to_numpy(task(inputs)).argmax(axis=-1) == labels)[weights > 0].mean()
    assert found["sparse_categorical_accuracy"] == pytest.approx(accuracy, abs=1e-6)


@pytest.mark.usefixtures("compiled_steps")
def test_pairs_are_learned(proto):
    task = tiny_translator(proto, {"position_encoding": "diet_abs"}, encoder_sequence_length=35)
    for weight in task.weights:
        weight.assign(weight if "gamma" in weight.path else 0.3 * weight)
    task.compile(keras.optimizers.Adam(0.02), sampler="greedy", jit_compile=BACKEND == "jax")
    pairs = SOURCES[1::2], TARGETS[1::2]
    # An epoch takes longer than its steps.
    many = [list(texts) * 15 for texts in pairs]
    history = task.fit(*many, batch_size=2, epochs=4, verbose=0).history["loss"]
    assert history[-1] < 0.1 < 1 < history[0]
    assert task.generate(pairs[0]) == pairs[1]


@any_backend
def test_configuration(proto):
    task = tiny_translator(proto)
    copy = DietTransformerSeq2SeqLM.from_config(task.get_config())
    assert copy.get_config() == task.get_config()
    assert copy.backbone.get_config() == task.backbone.get_config()
    frozen = DietTransformerSeq2SeqLM(tiny_backbone(), name="mine", trainable=False)
    assert frozen.trainable_weights == []
    copy = DietTransformerSeq2SeqLM.from_config(frozen.get_config())
    assert copy.name == "mine"
    assert copy.trainable_weights == []


@any_backend
def test_gradients_stop_at_frozen_backbones(rng):
    task = tiny_task(num_layers=1)
    task.backbone.encoder.trainable = False
    before = {weight.path: to_numpy(weight) for weight in task.weights}
    inputs = random_inputs(rng)
    task.compile("sgd", task.loss)
    task.fit(inputs, inputs["decoder_token_ids"], verbose=0)
    changed = {w.path for w in task.weights if np.any(to_numpy(w) != before[w.path])}
    assert changed
    assert not any(path.startswith("encoder/") for path in changed)
