"""`diet_bert_tiny_en`, the preset that comes with the package."""

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet.models import (
    DietBertBackbone,
    DietBertMaskedLM,
    DietBertTextClassifier,
    DietBertTextEmbedder,
)
from keras_diet.models.diet_bert.diet_bert_presets import DESCRIPTIONS, FOLDER

NAME = "diet_bert_tiny_en"
# Sentences in which the model must find one word among its first guesses.
KNOWN = {
    "he was born in new [MASK] city .": "york",
    "the film was directed [MASK] john smith .": "by",
    "the album was [MASK] in 1999 .": "released",
    "in the second world [MASK] , the army was defeated .": "war",
}


@pytest.fixture(scope="module")
def masked_lm():
    return DietBertMaskedLM.from_preset(NAME)


@pytest.mark.usefixtures("compiled_steps")
def test_it_knows_something(masked_lm):
    for guesses, word in zip(
        masked_lm.fill_mask(list(KNOWN), top_k=3), KNOWN.values(), strict=True
    ):
        assert word in [guess["token"] for guess in guesses]


@pytest.mark.any_backend
def test_it_reads_the_order_of_words(masked_lm):
    """Positions matter: the same words in another order get another guess."""
    texts = ["he lived in new york [MASK] .", "[MASK] york in new he lived ."]
    first, second = masked_lm.fill_mask(texts, top_k=1)
    assert first[0]["token"] != second[0]["token"]


@pytest.mark.any_backend
@pytest.mark.parametrize("cls", [DietBertMaskedLM, keras_hub.models.MaskedLM])
def test_dtype_and_sizes(cls):
    model = cls.from_preset(NAME)
    assert isinstance(model, DietBertMaskedLM)
    assert {weight.dtype for weight in model.weights} == {"float32"}
    backbone = model.backbone
    assert (backbone.position_encoding, backbone.rank, backbone.num_segments) == ("diet_abs", 64, 2)
    assert backbone.dropout == 0.1
    assert model.preprocessor.tokenizer.vocabulary_size() == backbone.vocabulary_size == 6000
    assert model.preprocessor.sequence_length == backbone.max_sequence_length == 128


@pytest.mark.any_backend
def test_other_tasks():
    classifier = DietBertTextClassifier.from_preset(NAME, class_names=["dull", "fine"])
    labels = {guess["label"] for guess in classifier.classify("a fine film")}
    assert labels == {"dull", "fine"}
    embedder = DietBertTextEmbedder.from_preset(NAME)
    vectors = embedder.encode_text(["the king of france", "the queen of spain", "he plays chess"])
    similarity = keras.ops.convert_to_numpy(embedder.similarity(vectors, vectors))
    assert similarity[0, 1] > similarity[0, 2]
    np.testing.assert_allclose(np.diag(similarity), 1.0, atol=1e-5)


@pytest.mark.any_backend
def test_files_are_small_and_complete():
    assert set(DESCRIPTIONS) <= set(DietBertBackbone.presets)
    assert sum(file.stat().st_size for file in (FOLDER / NAME).rglob("*")) < 5e6
    card = (FOLDER / NAME / "README.md").read_text(encoding="utf-8")
    history = (FOLDER / NAME / "history.csv").read_text(encoding="utf-8").splitlines()
    columns, last = history[0].split(","), history[-1].split(",")
    loss, accuracy = (
        float(last[columns.index(f"val_{name}")])
        for name in ("loss", "sparse_categorical_accuracy")
    )
    assert f"{loss:.2f}" in card
    assert f"{100 * accuracy:.0f} %" in card
