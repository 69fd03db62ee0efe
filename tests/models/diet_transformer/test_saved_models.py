"""What the files of translators hold besides weights: preprocessors and samplers.

`tests/models/test_model_contract.py` has the files of all tasks.
"""

import keras
import keras_hub
import pytest

from keras_diet.models import (
    DietBertTextClassifierPreprocessor,
    DietTransformerSeq2SeqLM,
    DietTransformerSeq2SeqLMPreprocessor,
    DietTransformerTokenizer,
)
from keras_diet.samplers import BeamSearchSampler
from tests.models.diet_transformer.pairs import SOURCES, TARGETS
from tests.models.diet_transformer.tiny import tiny_translator

pytestmark = pytest.mark.any_backend


@pytest.fixture
def translator(proto):
    return tiny_translator(proto, length_buckets=(9, 31))


def greedy(translator):
    translator.compile(sampler="greedy")
    return translator.generate(SOURCES[:3], max_length=7)


def test_presets(tmp_path, translator):
    translator.save_to_preset(tmp_path)
    hub, folder = keras_hub.models, str(tmp_path)
    tokenizer = hub.Tokenizer.from_preset(folder)
    assert type(tokenizer) is DietTransformerTokenizer
    assert tokenizer(TARGETS) == translator.preprocessor.tokenizer(TARGETS)
    tasks = [cls.from_preset(folder) for cls in (hub.Seq2SeqLM, DietTransformerSeq2SeqLM)]
    alone = hub.Seq2SeqLMPreprocessor.from_preset(folder)
    for preprocessor in (alone, *(task.preprocessor for task in tasks)):
        assert type(preprocessor) is DietTransformerSeq2SeqLMPreprocessor
        assert preprocessor.length_buckets == (9, 31)
        assert preprocessor.encoder_sequence_length == 67
        assert preprocessor.decoder_sequence_length == 17
    for task in tasks:
        assert type(task) is DietTransformerSeq2SeqLM
        assert greedy(task) == greedy(translator)
    with pytest.raises(ValueError, match="DietTransformer"):
        DietBertTextClassifierPreprocessor.from_preset(folder)


def test_a_task_of_a_backbone_and_a_tokenizer_saved_alone(tmp_path, translator):
    translator.backbone.save_to_preset(tmp_path)
    translator.preprocessor.tokenizer.save_to_preset(tmp_path)
    loaded = DietTransformerSeq2SeqLM.from_preset(str(tmp_path))
    # The defaults are 256, and the backbone takes 71.
    assert loaded.preprocessor.encoder_sequence_length == 71
    assert loaded.preprocessor.decoder_sequence_length == 71
    assert greedy(loaded) == greedy(translator)


@pytest.mark.parametrize(
    "sampler", [BeamSearchSampler(3, 1.7), keras_hub.samplers.TopPSampler(p=0.3, seed=5)]
)
def test_copies_hold_preprocessor_and_sampler(tmp_path, translator, sampler):
    """Files, presets and configurations. A new optimizer does not change the sampler."""
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
    for copy in copies[:3]:
        assert greedy(copy) == greedy(translator)
