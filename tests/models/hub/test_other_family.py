"""The bases of models with a family that is not BERT: two inputs, and a task with two outputs."""

import types

import numpy as np
import pytest

from tests.helpers import to_numpy
from tests.models.hub.toy import ToyBackbone, ToyTask, toy_inputs, toy_labels
from tests.models.tiny import randomize_weights


@pytest.fixture
def task():
    return randomize_weights(ToyTask(ToyBackbone()))


@pytest.mark.any_backend
@pytest.mark.parametrize("name", ["encoder_sequence_length", "decoder_sequence_length"])
def test_preprocessors_of_longer_sequences_are_refused(name):
    preprocessor = types.SimpleNamespace(**{name: 8})
    with pytest.raises(ValueError, match=rf"{name}=8, backbone.max_sequence_length=7"):
        ToyTask(ToyBackbone(), preprocessor)
    setattr(preprocessor, name, 7)
    ToyTask(ToyBackbone(), preprocessor)


def test_tasks_train_adapters_after_they_were_compiled(rng, task):
    """`fit` before `enable_lora` compiled a step that trains all weights."""
    inputs, labels = toy_inputs(rng), toy_labels(rng)
    task.fit(inputs, labels, verbose=0)
    task.backbone.enable_lora(rank=2)
    frozen = task.backbone.token_embedding.embeddings
    before = to_numpy(frozen)
    task.compile("sgd")
    task.fit(inputs, labels, epochs=2, verbose=0)
    np.testing.assert_array_equal(to_numpy(frozen), before)
    assert np.abs(to_numpy(task.backbone.query.lora_kernel_b)).max() > 0
