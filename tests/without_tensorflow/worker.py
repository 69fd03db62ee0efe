"""Uses models and `keras_diet.pretraining` without TensorFlow. Run it as a process:

    KERAS_BACKEND=jax python -m tests.without_tensorflow tests.without_tensorflow.worker PRESET

`PRESET` is the preset of a masked LM. The process writes files to its current folder, and prints
what importing `keras_diet` has loaded and how KerasHub refuses the preset before.
"""

import json
import sys
from pathlib import Path

import keras
import keras_hub
import numpy as np
import pytest

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 10}
LENGTH = 13
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "quick", "fox", "##es", "cat"]
TEXTS = ["the quick fox", "foxes", "A cat", "the cat the fox"]
LABELS = [0, 2, 1, 1]


def packages():
    return {name.split(".")[0] for name in sys.modules} - sys.stdlib_module_names


def refusals(preset):
    """The errors of KerasHub's classes, which cannot know our classes yet."""
    messages = []
    for base in (keras_hub.models.MaskedLM, keras_hub.models.Backbone, keras_hub.models.Tokenizer):
        try:
            base.from_preset(preset)
        except ValueError as error:
            messages.append(str(error))
    assert "keras_diet" not in sys.modules
    return messages


def import_keras_diet():
    """The packages that `import keras_diet` loads, and the names that it registers."""
    before = packages()
    import keras_diet  # noqa: F401

    registered = [name for name in keras.saving.get_custom_objects() if "keras_diet>" in name]
    return sorted(packages() - before), registered


def task(name, **arguments):
    from keras_diet import models

    masking = {"mask_selection_rate": 1.0} if name == "DietBertMaskedLM" else {}
    preprocessor = getattr(models, f"{name}Preprocessor")(
        models.DietBertTokenizer(WORDS, lowercase=True), sequence_length=LENGTH, **masking
    )
    backbone = models.DietBertBackbone(len(WORDS), max_sequence_length=LENGTH, **SIZES)
    return getattr(models, name)(backbone, preprocessor=preprocessor, **arguments)


def use_translator():
    from keras_diet import models

    with pytest.raises(ValueError, match="must have tokens for pad"):
        models.DietTransformerTokenizer(b"")
    pairs = models.DietTransformerSeq2SeqLMPreprocessor(
        models.DietTransformerTokenizer.from_texts(TEXTS, 24), 13, 17, length_buckets=(5,)
    )
    inputs, labels, weights = pairs(TEXTS, TEXTS[::-1])
    assert inputs["encoder_token_ids"].shape == (4, 13)
    assert labels.shape == weights.shape == (4, 17)
    prompts = {"encoder_text": TEXTS[1], "decoder_text": "the cat"}
    assert pairs.generate_postprocess(pairs.generate_preprocess(prompts)) == "the cat"
    translator = models.DietTransformerSeq2SeqLM(
        models.DietTransformerBackbone(24, max_sequence_length=17, **SIZES), pairs
    )
    translator.compile(optimizer="adam", sampler="greedy")
    translator.fit(TEXTS, TEXTS[::-1], batch_size=2, verbose=0)
    translations = translator.generate(TEXTS, max_length=5)
    assert [type(text) for text in translations] == [str] * 4


def use_classifier():
    from keras_diet.models import DietBertTextClassifier

    classifier = task("DietBertTextClassifier", num_classes=3)
    tokens = classifier.preprocessor(["the quick foxes"])["token_ids"]
    assert keras.ops.convert_to_numpy(tokens)[0, :6].tolist() == [2, 5, 7, 8, 9, 3]
    pairs = (TEXTS, TEXTS[::-1])
    segment_ids = np.asarray(classifier.preprocessor(pairs)["segment_ids"])
    assert segment_ids[1].tolist() == 4 * [0] + 3 * [1] + 6 * [0], segment_ids
    classifier.fit(pairs, LABELS, batch_size=2, verbose=0)
    assert classifier.predict(pairs, batch_size=2, verbose=0).shape == (4, 3)
    expected = classifier.predict(TEXTS, batch_size=2, verbose=0)
    for y, words in (([3, 0, 1, 1], "values from 0 to 3"), (TEXTS, "`y` must be numbers")):
        with pytest.raises(ValueError, match=words):
            classifier.evaluate(TEXTS, y, batch_size=2, verbose=0)

    classifier.save_to_preset("preset")
    for cls in (DietBertTextClassifier, keras_hub.models.TextClassifier):
        loaded = cls.from_preset("preset")
        outputs = loaded(loaded.preprocessor(TEXTS))
        np.testing.assert_allclose(keras.ops.convert_to_numpy(outputs), expected, atol=1e-6)
    classifier.save("task.keras")
    classifier.backbone.save_weights("backbone.weights.h5")
    classifier.backbone.load_weights("backbone.weights.h5")
    classifier.quantize("int8")


def use_token_classifier():
    from keras_diet.models import DietBertTokenClassifier

    classifier = task("DietBertTokenClassifier", class_names=["DET", "NOUN", "ADJ"])
    sentences = [["the", "quick", "foxes"], ["a", "cat"]]
    labels = [["DET", "ADJ", "NOUN"], ["DET", "NOUN"]]
    classifier.fit(sentences, labels, verbose=0)
    classifier.save_to_preset("token_classifier")
    loaded = DietBertTokenClassifier.from_preset("token_classifier")
    assert loaded.tag(sentences) == classifier.tag(sentences)


def use_question_answerer():
    from keras_diet import models

    preprocessor = models.DietBertQuestionAnswererPreprocessor(
        models.DietBertTokenizer(WORDS, lowercase=True), sequence_length=9, doc_stride=2
    )
    backbone = models.DietBertBackbone(len(WORDS), max_sequence_length=LENGTH, **SIZES)
    model = models.DietBertQuestionAnswerer(backbone, preprocessor)
    pairs = (["a fox", "cat"], ["the quick the Foxes the cat", "the fox"])
    answers = {"text": ["Foxes", ""], "answer_start": [14, -1]}
    # Rooms for 4 of 7 tokens, and for 5 of 2: windows at 0, 2 and 4, and at 0.
    _, positions = preprocessor(pairs, answers)
    assert np.asarray(positions["end"]).tolist() == [0, 6, 0, 0], positions
    model.fit(pairs, answers, sample_weight=[2.0, 1.0], batch_size=3, verbose=0)
    assert model.predict(pairs, verbose=0)["start"].shape == (4, 9)
    best = model.answer(*pairs, null_threshold=1e9)[0]
    assert best["text"] == pairs[1][0][best["start"] : best["end"]]
    with pytest.raises(ValueError, match="with the start 13 in row 0"):
        model.evaluate(pairs, {**answers, "answer_start": [13, -1]}, verbose=0)
    model.save_to_preset("question_answerer")
    loaded = models.DietBertQuestionAnswerer.from_preset("question_answerer")
    assert loaded.answer(*pairs)[0]["text"] == best["text"]


def use_masked_lm():
    from keras_diet.models import DietBertMaskedLM

    masked_lm = task("DietBertMaskedLM")
    history = masked_lm.fit(TEXTS, batch_size=2, verbose=0).history
    assert abs(history["loss"][0] - np.log(len(WORDS))) < 0.3, history
    assert masked_lm.predict(TEXTS, batch_size=2, verbose=0).shape[::2] == (4, len(WORDS))
    assert masked_lm.fill_mask("the [MASK] fox", top_k=2)
    masked_lm.save_to_preset("masked_lm")
    loaded = keras_hub.models.MaskedLM.from_preset("masked_lm")
    assert type(loaded) is DietBertMaskedLM
    x = loaded.preprocessor(TEXTS)[0]
    masked_lm.preprocessor = loaded.preprocessor = None
    outputs = [model.predict(x, batch_size=2, verbose=0) for model in (masked_lm, loaded)]
    np.testing.assert_allclose(*outputs, atol=1e-6)


def use_embedder():
    embedder = task("DietBertTextEmbedder")
    padding_mask = np.asarray(embedder.preprocessor(TEXTS)["padding_mask"])
    assert padding_mask.astype(int).sum(1).tolist() == [5, 4, 4, 6], padding_mask
    embeddings = embedder.encode_text(TEXTS, batch_size=2, verbose=0)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=-1), 1, atol=1e-5)


def use_multilingual_model():
    from keras_diet import models

    texts = {"en": TEXTS, "de": ["der schnelle Fuchs", "die Katze"]}
    tokenizer = models.DietBertSentencePieceTokenizer.from_texts(texts, 40, "bpe")
    token_ids, offsets = tokenizer.tokenize_with_offsets("die ﬁ")
    assert token_ids == tokenizer("die ﬁ").tolist()
    assert offsets[-1] == (4, 5)
    preprocessor = models.DietBertMaskedLMPreprocessor(tokenizer, sequence_length=LENGTH)
    backbone = models.DietBertBackbone(40, max_sequence_length=LENGTH, **SIZES)
    masked_lm = models.DietBertMaskedLM(backbone, preprocessor)
    masked_lm.fit(texts["de"], batch_size=2, verbose=0)
    masked_lm.save_to_preset("multilingual")
    loaded = keras_hub.models.MaskedLM.from_preset("multilingual")
    assert type(loaded.preprocessor.tokenizer) is models.DietBertSentencePieceTokenizer
    found = [model.fill_mask("der [MASK]", top_k=1)[0] for model in (masked_lm, loaded)]
    assert found[0]["token"] == found[1]["token"]


def use_pretraining():
    from keras_diet import pretraining

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


def main(preset):
    results = {"refusals": refusals(preset)}
    results["packages"], results["registered"] = import_keras_diet()
    if keras.backend.backend() == "torch":
        # One backend is enough, and PyTorch does not compile.
        use_pretraining()
    use_classifier()
    use_translator()
    use_masked_lm()
    use_embedder()
    use_token_classifier()
    use_multilingual_model()
    use_question_answerer()
    assert not any(name.split(".")[0] == "tensorflow" for name, m in sys.modules.items() if m)
    results["backend"] = keras.backend.backend()
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
