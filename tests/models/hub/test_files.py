"""Files of checkpoints, presets and adapters, in cases that other tests do not have."""

import json

import keras
import numpy as np
import pytest
import safetensors.numpy

from keras_diet.models import (
    DietBertBackbone,
    DietBertMaskedLM,
    DietBertTextClassifier,
    DietBertTextClassifierPreprocessor,
    DietBertTextEmbedderPreprocessor,
)
from keras_diet.models.hub.checkpoint_files import read_safetensors
from keras_diet.models.hub.lora import freeze_adapted_biases
from tests.models.tasks import tiny_preprocessor, tiny_task
from tests.models.tiny import VOCABULARY, tiny_backbone

pytestmark = pytest.mark.any_backend


def test_tensors_without_floating_point_numbers_are_left_out(tmp_path):
    tensors = {
        "kernel": np.array([0.5, 2.0]),
        "mask": np.array([True, False]),
        "signed": np.array([3], dtype="int8"),
        "unsigned": np.array([3], dtype="uint8"),
    }
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors")
    read = read_safetensors(tmp_path / "model.safetensors")
    assert list(read) == ["kernel"]
    assert read["kernel"].dtype == "float32"


def test_missing_weights_are_not_called_damaged(tmp_path):
    with pytest.raises(FileNotFoundError):
        tiny_backbone(num_layers=1).load_weights(tmp_path / "missing.weights.h5")


# === LoRA ===


def test_adapted_layers_need_no_bias():
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, use_bias=False)])
    model.layers[0].enable_lora(2)
    freeze_adapted_biases(model)
    assert len(model.trainable_weights) == 2


def test_adapters_of_kernels_with_more_outputs_are_refused(tmp_path):
    adapted, other = (tiny_backbone(num_layers=1, intermediate_dim=size) for size in (23, 29))
    adapted.enable_lora(2, target_layer_names=["feedforward_intermediate_dense"])
    adapted.save_lora_weights(tmp_path / "task.lora.h5")
    with pytest.raises(
        ValueError, match=r"other sizes.*\(15, 23\) for a kernel of shape \(15, 29\)"
    ):
        other.load_lora_weights(tmp_path / "task.lora.h5")
    assert not any("lora" in weight.path for weight in other.weights)


# === Presets ===


def test_a_task_is_saved_in_several_files(tmp_path):
    tiny_task("classifier").save_to_preset(tmp_path, max_shard_size=1e-5)
    assert (tmp_path / "model.weights.json").exists()
    assert not (tmp_path / "model.weights.h5").exists()


def test_a_task_of_a_preset_may_have_another_backbone(tmp_path):
    tiny_backbone(num_layers=1).save_to_preset(tmp_path)
    backbone = tiny_backbone(num_layers=2)
    masked_lm = DietBertMaskedLM.from_preset(tmp_path, backbone=backbone, preprocessor=None)
    assert masked_lm.backbone is backbone


def test_vocabularies_that_do_not_fit_are_refused_when_a_task_is_loaded(tmp_path):
    """The vocabulary is read after the task is made, which does not know its size."""
    tiny_task("classifier").save_to_preset(tmp_path)
    config = json.loads((tmp_path / "task.json").read_text())
    # As an earlier version wrote it.
    del config["config"]["preprocessor"]["config"]["tokenizer"]["config"]["vocabulary_size"]
    (tmp_path / "task.json").write_text(json.dumps(config))
    with open(tmp_path / "assets/tokenizer/vocabulary.txt", "a") as file:
        file.write("extra\n")
    with pytest.raises(ValueError, match=r"vocabulary_size=31 and a tokenizer of 32 tokens"):
        DietBertTextClassifier.from_preset(tmp_path)


def test_new_preprocessors_keep_lengths_that_the_backbone_can_take(tmp_path):
    DietBertBackbone(len(VOCABULARY), 1, 3, 15, 23, max_sequence_length=300).save_to_preset(
        tmp_path
    )
    tiny_preprocessor("masked_lm").save_to_preset(tmp_path)
    lengths = [
        cls.from_preset(tmp_path, **arguments).sequence_length
        for cls in (DietBertTextClassifierPreprocessor, DietBertTextEmbedderPreprocessor)
        for arguments in ({}, {"sequence_length": 7})
    ]
    # The defaults are 512 and 256.
    assert lengths == [300, 7, 256, 7]


@pytest.mark.parametrize("default", [None, (None,)], ids=["required", "None"])
def test_preprocessors_of_users_need_no_default_length(tmp_path, default):
    class Preprocessor(DietBertTextClassifierPreprocessor):
        def __init__(self, tokenizer, sequence_length, **kwargs):
            super().__init__(tokenizer, sequence_length=sequence_length, **kwargs)

    Preprocessor.__init__.__defaults__ = default
    tiny_backbone(num_layers=1).save_to_preset(tmp_path)
    tiny_preprocessor("masked_lm").save_to_preset(tmp_path)
    assert Preprocessor.from_preset(tmp_path, sequence_length=7).sequence_length == 7
