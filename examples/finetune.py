"""Lesson 3: fine-tune a text classifier on a CSV file.

You learn how to load a pretrained model, to train it on texts and labels, and to use it. The file
has a text and a label in each line, below a line with names. Any labels do: the classifier keeps
their names. Without a file the lesson learns what six short reviews say about films.

    KERAS_BACKEND=jax python examples/finetune.py
    KERAS_BACKEND=jax python examples/finetune.py reviews.csv "a fine story" "what a boring film"

The pretrained model is in the package. `from_hugging_face(folder)` loads a larger one instead.
"""

import sys

if "--help" in sys.argv:  # before the imports, which take seconds
    sys.exit(print(__doc__))

import csv
import random
from pathlib import Path

import keras

from keras_diet import models, training

REVIEWS = """text,label
a fine film with a great story,good
the best album of the year,good
"a great book, and a fine one",good
a bad film with a poor story,bad
the worst album of the year,bad
"a poor book, and a bad one",bad
"""


def read_csv(text):
    """Return the texts and the labels, in a new order."""
    rows = list(csv.reader(text.splitlines()))[1:]
    random.Random(0).shuffle(rows)
    return [row[0] for row in rows], [row[1] for row in rows]


def make_classifier(labels, steps):
    """Return a classifier that begins with the pretrained model in the package."""
    classifier = models.DietBertTextClassifier.from_preset(
        "diet_bert_tiny_en", class_names=sorted(set(labels))
    )
    # A small model, so a large rate. For a model of the size of BERT take 3e-5.
    rate = training.WarmupLinearDecay(1e-3, steps, warmup_proportion=0.1)
    classifier.compile(keras.optimizers.AdamW(rate, weight_decay=0.01))
    return classifier


def main(file=None, questions=("a great story", "the worst film"), epochs=20, folder=None):
    """Train on the file, save the classifier, and classify the questions."""
    keras.utils.set_random_seed(0)
    name = Path(file).stem if file else "reviews"
    folder = Path(folder or Path("runs", "finetune", keras.config.backend(), name))
    texts, labels = read_csv(Path(file).read_text(encoding="utf-8") if file else REVIEWS)
    # A tenth is held out, if there is enough to hold out.
    held_out = len(texts) // 10
    steps = epochs * -(-(len(texts) - held_out) // 32)
    classifier = make_classifier(labels, steps)
    # After an interruption, `fit` continues with the next step.
    training.ExactResume(folder / "checkpoints", save_every=200).fit(
        classifier,
        texts[held_out:],
        labels[held_out:],
        batch_size=32,
        epochs=epochs,
        verbose=1 if sys.stdout.isatty() else 2,
    )
    answers = classifier.classify(texts)
    right = [answer[0]["label"] == label for answer, label in zip(answers, labels, strict=True)]
    for name, part in (("training", right[held_out:]), ("held-out", right[:held_out])):
        if part:
            print(f"right in {sum(part)} of {len(part)} {name} texts")

    classifier.save_to_preset(folder / "preset")
    loaded = models.DietBertTextClassifier.from_preset(folder / "preset")
    answers = loaded.classify(list(questions))
    for text, (best, *_) in zip(questions, answers, strict=True):
        print(f"{best['label']} ({best['probability']:.2f}): {text}")
    return answers


if __name__ == "__main__":
    main(*sys.argv[1:2], *([sys.argv[2:]] if sys.argv[2:] else []))
