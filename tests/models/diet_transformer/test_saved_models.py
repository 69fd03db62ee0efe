"""What the files of translators hold besides weights: preprocessors and samplers.

`tests/models/test_model_contract.py` has the files of all tasks.
"""

import keras
import keras_hub
import pytest

from keras_diet.models import DietTransformerSeq2SeqLM
from keras_diet.samplers import BeamSearchSampler
from tests.models.diet_transformer.pairs import SOURCES
from tests.models.diet_transformer.tiny import tiny_translator

pytestmark = pytest.mark.any_backend


@pytest.fixture
def translator(proto):
    return tiny_translator(proto, length_buckets=(9, 31))


def greedy(translator):
    translator.compile(sampler="greedy")
    return translator.generate(SOURCES[:3], max_length=7)


def test_a_task_of_a_backbone_and_a_tokenizer_saved_alone(tmp_path, translator):
    translator.backbone.save_to_preset(tmp_path)
    translator.preprocessor.tokenizer.save_to_preset(tmp_path)
    loaded = DietTransformerSeq2SeqLM.from_preset(str(tmp_path))
    # The defaults are 256, and the backbone takes 71.
    assert loaded.preprocessor.encoder_sequence_length == 71
    assert loaded.preprocessor.decoder_sequence_length == 71
    assert greedy(loaded) == greedy(translator)


def test_copies_hold_preprocessor_and_sampler(tmp_path, translator):
    """Files, presets and configurations. A new optimizer does not change the sampler."""
    sampler = BeamSearchSampler(3, 1.7)
    translator.compile(sampler=sampler)
    translator.save(tmp_path / "translator.keras")
    translator.save_to_preset(tmp_path)
    copies = [
        keras.saving.load_model(tmp_path / "translator.keras"),
        keras_hub.models.Seq2SeqLM.from_preset(str(tmp_path)),
        DietTransformerSeq2SeqLM.from_preset(tmp_path, compile=False),
        # Without the vocabulary.
        DietTransformerSeq2SeqLM.from_config(translator.get_config()),
    ]
    copies[2].compile("sgd")
    for copy in copies:
        assert type(copy.sampler) is type(sampler)
        assert copy.sampler.get_config() == sampler.get_config()
        assert copy.preprocessor.length_buckets == (9, 31)
        assert copy.preprocessor.encoder_sequence_length == 67
    for copy in copies[:3]:
        assert greedy(copy) == greedy(translator)
