"""Uses models and `keras_diet.pretraining` without TensorFlow. Run it as a process:

    KERAS_BACKEND=torch python -m tests.without_tensorflow tests.without_tensorflow.worker

The process writes files to its current folder, and prints the backend.
"""

import sys
from pathlib import Path

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet import models, pretraining

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 10}
LENGTH = 13
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "quick", "fox", "##es", "cat"]
TEXTS = ["the quick fox", "foxes", "A cat", "the cat the fox"]
LABELS = [0, 2, 1, 1]


def check_trained_and_saved(task, x, y=None):
    """Train a task, and assert that the task in its preset has the same outputs."""
    task.fit(x, y, batch_size=2, verbose=0)
    folder = type(task).__name__
    task.save_to_preset(folder)
    loaded = type(task).from_preset(folder)
    outputs = (model.predict(x, batch_size=2, verbose=0) for model in (task, loaded))
    for output, expected in zip(*map(keras.tree.flatten, outputs), strict=True):
        assert len(output) == len(TEXTS)
        np.testing.assert_allclose(output, expected, atol=1e-6)


def use_translator():
    pairs = models.DietTransformerSeq2SeqLMPreprocessor(
        models.DietTransformerTokenizer.from_texts(TEXTS, 24), 13, 17, length_buckets=(5,)
    )
    prompts = {"encoder_text": TEXTS[1], "decoder_text": "the cat"}
    assert pairs.generate_postprocess(pairs.generate_preprocess(prompts)) == "the cat"
    translator = models.DietTransformerSeq2SeqLM(
        models.DietTransformerBackbone(24, max_sequence_length=17, **SIZES), pairs
    )
    translator.compile(optimizer="adam", sampler="greedy")
    translator.fit(TEXTS, TEXTS[::-1], batch_size=2, verbose=0)
    translations = translator.generate(TEXTS, max_length=5)
    assert [type(text) for text in translations] == [str] * 4


def use_tasks():
    def make(name, **arguments):
        lengths = {"sequence_length": LENGTH}
        if name == "DietBertMaskedLM":
            lengths["mask_selection_rate"] = 1.0
        preprocessor = getattr(models, f"{name}Preprocessor")(
            models.DietBertTokenizer(WORDS, lowercase=True), **lengths
        )
        backbone = models.DietBertBackbone(len(WORDS), max_sequence_length=LENGTH, **SIZES)
        return getattr(models, name)(backbone, preprocessor=preprocessor, **arguments)

    classifier = make("DietBertTextClassifier", num_classes=3)
    check_trained_and_saved(classifier, TEXTS, LABELS)
    check_trained_and_saved(classifier, (TEXTS, TEXTS[::-1]), LABELS)
    classifier.save("task.keras")
    classifier.backbone.save_weights("backbone.weights.h5")
    classifier.backbone.load_weights("backbone.weights.h5")
    classifier.quantize("int8")

    words = [text.split() for text in TEXTS]
    labels = [["DET", "ADJ", "NOUN"], ["NOUN"], ["DET", "NOUN"], ["DET", "NOUN", "DET", "NOUN"]]
    tagger = make("DietBertTokenClassifier", class_names=["DET", "NOUN", "ADJ"])
    check_trained_and_saved(tagger, words, labels)
    assert [word["word"] for word in tagger.tag(words)[2]] == ["A", "cat"]

    answerer = make("DietBertQuestionAnswerer")
    contexts = ["the quick the Foxes", "the fox", "a cat", "the cat"]
    answers = {"text": ["Foxes", "", "cat", ""], "answer_start": [14, -1, 2, -1]}
    check_trained_and_saved(answerer, (TEXTS, contexts), answers)
    best = answerer.answer(TEXTS, contexts, null_threshold=1e9)[0]
    assert best["text"] == contexts[0][best["start"] : best["end"]]

    masked_lm = make("DietBertMaskedLM")
    check_trained_and_saved(masked_lm, TEXTS)
    assert masked_lm.fill_mask("the [MASK] fox", top_k=2)

    embeddings = make("DietBertTextEmbedder").encode_text(TEXTS, batch_size=2, verbose=0)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=-1), 1, atol=1e-5)


def use_multilingual_model():
    texts = {"en": TEXTS, "de": ["der schnelle Fuchs", "die Katze"]}
    tokenizer = models.DietBertSentencePieceTokenizer.from_texts(texts, 40, "bpe")
    token_ids, offsets = tokenizer.tokenize_with_offsets("die ﬁ")
    assert token_ids == tokenizer("die ﬁ").tolist()
    assert offsets[-1] == (4, 5)
    preprocessor = models.DietBertTextEmbedderPreprocessor(tokenizer, sequence_length=LENGTH)
    backbone = models.DietBertBackbone(40, max_sequence_length=LENGTH, **SIZES)
    embedder = models.DietBertTextEmbedder(backbone, preprocessor)
    embedder.save_to_preset("multilingual")
    loaded = keras_hub.models.TextEmbedder.from_preset("multilingual")
    assert type(loaded.preprocessor.tokenizer) is models.DietBertSentencePieceTokenizer
    outputs = (model.encode_text(texts["de"], verbose=0) for model in (embedder, loaded))
    np.testing.assert_allclose(*outputs, atol=1e-6)


def use_pretraining():
    text = "One fox sees two foxes. Two foxes see one fox!\n\nThe end is near. " * 20
    Path("corpus.txt").write_text(text)
    lines = (line for document in pretraining.read_documents("corpus.txt") for line in document)
    vocabulary = pretraining.train_wordpiece_vocabulary(lines, 60, show_progress=False)
    tokenizer = keras_hub.models.BertTokenizer(vocabulary, lowercase=True)
    token_ids = pretraining.pack_text_files(
        "corpus.txt", tokenizer, 16, "tokens.npy", show_progress=False
    )
    dataset = pretraining.masked_lm_dataset(token_ids, tokenizer, 4, repeat=True)

    backbone = keras_hub.models.BertBackbone(len(vocabulary), 1, 2, 8, 8, max_sequence_length=16)
    model = keras_hub.models.BertMaskedLM(backbone, preprocessor=None)
    schedule = pretraining.WarmupLinearDecay(0.01, 10)
    model.compile(
        keras.optimizers.Adam(schedule),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=[],
    )
    model.fit(dataset, steps_per_epoch=1, verbose=0)
    assert int(model.optimizer.iterations) == 1
    with pytest.raises(ImportError, match="tensorflow"):
        pretraining.as_tf_dataset(dataset)


def main():
    use_pretraining()
    use_tasks()
    use_translator()
    use_multilingual_model()
    assert not any(name.split(".")[0] == "tensorflow" for name, m in sys.modules.items() if m)
    print(keras.backend.backend())


if __name__ == "__main__":
    main()
