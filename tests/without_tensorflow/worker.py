"""Uses models and `keras_diet.pretraining` without TensorFlow. Run it as a process:

    KERAS_BACKEND=torch python -m tests.without_tensorflow tests.without_tensorflow.worker FOLDER

The process writes files to the folder, and prints the backend.
"""

import os
import sys
from pathlib import Path

import keras
import keras_hub
import pytest

from keras_diet import models, pretraining
from tests.models import question_answering as questions
from tests.models import test_token_classification as words
from tests.models.diet_transformer.tiny import tiny_translator
from tests.models.tasks import tiny_task
from tests.models.tiny import TEXTS, tiny_backbone


def translator():
    proto = models.DietTransformerTokenizer.from_texts(TEXTS, 61).proto
    return tiny_translator(proto, decoder_sequence_length=67)


QUESTIONS = (questions.QUESTIONS, questions.CONTEXTS)
PAIRS = (TEXTS, TEXTS[::-1])
# How to make a task, its texts and labels, and what it is used for.
# `tests/cross_backend` saves and loads tasks without TensorFlow, too.
TASKS = [
    (lambda: tiny_task("classifier"), PAIRS, [0, 2, 1, 1, 6], lambda task: task.classify(PAIRS)),
    (lambda: tiny_task("masked_lm"), TEXTS, None, lambda task: task.fill_mask("the [MASK] fox")),
    (words.tiny, words.SENTENCES, words.LABELS, lambda task: task.tag(words.SENTENCES)),
    (
        *(questions.tiny_question_answerer, QUESTIONS, questions.ANSWERS),
        lambda task: task.answer(*QUESTIONS),
    ),
    (translator, *PAIRS, lambda task: task.generate(TEXTS, 5)),
]


def use_tasks():
    for make, x, y, use in TASKS:
        task = make()
        task.fit(x, y, batch_size=2, verbose=0)
        assert use(task)
        task.save("task.keras")
    tiny_task("embedder").quantize("int8")


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
    use_tasks()
    assert not any(name.split(".")[0] == "tensorflow" for name, m in sys.modules.items() if m)
    print(keras.backend.backend())


if __name__ == "__main__":
    main(*sys.argv[1:])
