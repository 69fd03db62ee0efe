"""Uses models and `keras_diet.pretraining` without TensorFlow. Run it as a process:

    KERAS_BACKEND=torch python -m tests.without_tensorflow tests.without_tensorflow.worker FOLDER

The process writes files to the folder, and prints the backend.
"""

import os
import sys
from pathlib import Path

import keras
import keras_hub
import numpy as np
import pytest

from keras_diet import models, pretraining
from tests.models import multilingual
from tests.models import question_answering as questions
from tests.models import test_token_classification as words
from tests.models.diet_transformer.tiny import tiny_translator
from tests.models.tasks import tiny_task
from tests.models.tiny import TEXTS, tiny_backbone


def multilingual_embedder():
    tokenizer = multilingual.multilingual_tokenizer()
    backbone = tiny_backbone(num_layers=1, vocabulary_size=tokenizer.vocabulary_size())
    preprocessor = models.DietBertTextEmbedderPreprocessor(tokenizer, sequence_length=13)
    return models.DietBertTextEmbedder(backbone, preprocessor)


def translator():
    proto = models.DietTransformerTokenizer.from_texts(TEXTS, 61).proto
    return tiny_translator(proto, decoder_sequence_length=67)


QUESTIONS = (questions.QUESTIONS, questions.CONTEXTS)
# How to make a task, its texts and labels, and what it is used for.
TASKS = {
    "classifier": (
        *(lambda: tiny_task("classifier"), (TEXTS, TEXTS[::-1]), [0, 2, 1, 1, 6]),
        lambda task: task.predict((TEXTS, TEXTS[::-1]), batch_size=2, verbose=0),
    ),
    "masked_lm": (
        *(lambda: tiny_task("masked_lm"), TEXTS, None),
        lambda task: task.fill_mask("the [MASK] fox", top_k=2),
    ),
    "embedder": (
        *(multilingual_embedder, multilingual.TEXTS["de"], np.eye(3, 15, dtype="float32")),
        lambda task: task.encode_text(multilingual.TEXTS["de"], batch_size=2, verbose=0),
    ),
    "tagger": (
        *(words.tiny, words.SENTENCES, words.LABELS),
        lambda task: task.tag(words.SENTENCES),
    ),
    "question_answerer": (
        *(questions.tiny_question_answerer, QUESTIONS, questions.ANSWERS),
        lambda task: task.answer(*QUESTIONS, null_threshold=1e9),
    ),
    "translator": (translator, TEXTS, TEXTS[::-1], lambda task: task.generate(TEXTS, 5)),
}


def use_task(name):
    """Train a task, and assert that the task in its preset has the same results."""
    make, x, y, use = TASKS[name]
    task = make()
    if name == "embedder":
        task.compile(loss="mse")
    task.fit(x, y, batch_size=2, verbose=0)
    task.save_to_preset(name)
    loaded = type(task).from_preset(name)
    assert type(loaded.preprocessor.tokenizer) is type(task.preprocessor.tokenizer)
    np.testing.assert_equal(use(loaded), use(task))
    if name == "classifier":
        task.save("task.keras")
        task.quantize("int8")


def use_pretraining():
    text = "One fox sees two foxes. Two foxes see one fox!\n\nThe end is near. " * 20
    Path("corpus.txt").write_text(text)
    lines = (line for document in pretraining.read_documents("corpus.txt") for line in document)
    vocabulary = pretraining.train_wordpiece_vocabulary(lines, 60, show_progress=False)
    tokenizer = keras_hub.models.BertTokenizer(vocabulary, lowercase=True)
    token_ids = pretraining.pack_text_files(
        "corpus.txt", tokenizer, 13, "tokens.npy", show_progress=False
    )
    dataset = pretraining.masked_lm_dataset(token_ids, tokenizer, 4, repeat=True)
    model = models.DietBertMaskedLM(tiny_backbone(vocabulary_size=len(vocabulary)))
    model.fit(dataset, steps_per_epoch=1, verbose=0)
    assert int(model.optimizer.iterations) == 1
    with pytest.raises(ImportError, match="tensorflow"):
        pretraining.as_tf_dataset(dataset)


def main(folder):
    os.chdir(folder)
    use_pretraining()
    for name in TASKS:
        use_task(name)
    assert not any(name.split(".")[0] == "tensorflow" for name, m in sys.modules.items() if m)
    print(keras.backend.backend())


if __name__ == "__main__":
    main(*sys.argv[1:])
