"""Train a tagger: a class for each word, such as named entities or parts of speech.

Without `--data` the script learns to tell persons from places in sentences that are made by rule.
A name may be both, so a model has to use positions. It downloads nothing, and takes about a minute
of CPU time on JAX. PyTorch takes longer, because the script does not compile there.

    python examples/tag_words.py
    python examples/tag_words.py --data train.conll validation.conll --preset PRESET \\
        --learning-rate 5e-5 --epochs 3 --sequence-length 128

`--data` takes files in CoNLL's format: a word and its tag in each line, and a blank line after each
sentence. At the end you see the accuracy of the words. For tags such as `B-PER` and `I-PER`, you
also see precision, recall and F1 of the entities, by `nervaluate`: an entity is correct if its
words and its type are right, as in CoNLL's evaluation. To resume an interrupted run, give the same
command again: training continues at the last checkpoint. The script needs `keras-diet[examples]`.
"""

import json
import sys
from pathlib import Path

import common
import keras
import keras_hub
import numpy as np
from common import positive_int
from nervaluate import Evaluator
from tag_data import read_conll, sentences_from_rule

from keras_diet import models, pretraining, training

LENGTH_BUCKETS = (16, 32, 64, 128, 256)


def main(argv=None):
    arguments = parse_arguments(argv)
    folder = arguments.output_dir
    options = {
        name: json.loads(json.dumps(value, default=str))
        for name, value in vars(arguments).items()
        if name not in ("output_dir", "overwrite", "save_every")
    }
    common.claim_output_dir(folder, options, arguments.overwrite)
    train_data, validation_data = load_data(arguments)
    classifier = build_classifier(*train_data, arguments)
    print(f"{len(train_data[0]):,} sentences, classes: {', '.join(classifier.class_names)}")
    train(classifier, train_data, validation_data, arguments)
    classifier.save_to_preset(folder / "preset")

    found = classifier.tag(validation_data[0])
    results = evaluate(validation_data[1], [[word["label"] for word in row] for row in found])
    (folder / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    print_results(results)
    for row in found[:2]:
        print(" ".join(f"{word['word']}/{word['label']}" for word in row))
    print(f"Preset, history and results are in {folder}.")


# === Step 1: data ===


def load_data(arguments):
    """Return sentences and tags to train with, and to validate with."""
    if arguments.data is None:
        return [sentences_from_rule(split) for split in ("train", "validation")]
    return [read_conll(path, arguments.columns) for path in arguments.data]


# === Step 2: the model ===


def build_classifier(sentences, tags, arguments):
    keras.utils.set_random_seed(arguments.seed)
    if arguments.preset:
        backbone = models.DietBertBackbone.from_preset(
            arguments.preset, recompute=arguments.recompute
        )
        tokenizer = keras_hub.models.Tokenizer.from_preset(arguments.preset)
    else:
        backbone, tokenizer = small_model(sentences, arguments)
    length = arguments.sequence_length
    buckets = tuple(bucket for bucket in LENGTH_BUCKETS if bucket < length)
    preprocessor = models.DietBertTokenClassifierPreprocessor(
        tokenizer, length, length_buckets=buckets
    )
    names = sorted({tag for of_words in tags for tag in of_words})
    classifier = models.DietBertTokenClassifier(
        backbone, preprocessor=preprocessor, class_names=names
    )
    steps = arguments.epochs * steps_per_epoch(sentences, arguments)
    common.compile_for_training(classifier, arguments.learning_rate, steps, arguments)
    return classifier


def small_model(sentences, arguments):
    """Return a small random backbone, and a tokenizer for the words of the sentences."""
    texts = (" ".join(words) for words in sentences)
    vocabulary = pretraining.train_wordpiece_vocabulary(texts, 4000, show_progress=False)
    backbone = models.DietBertBackbone(
        vocabulary_size=len(vocabulary),
        num_layers=2,
        num_heads=4,
        hidden_dim=64,
        intermediate_dim=128,
        max_sequence_length=arguments.sequence_length,
        position_encoding=arguments.position_encoding,
        segment_encoding="none",
        recompute=arguments.recompute,
    )
    return backbone, models.DietBertTokenizer(vocabulary, lowercase=True)


def steps_per_epoch(sentences, arguments):
    return -(-len(sentences) // arguments.batch_size)


# === Step 3: training ===


def train(classifier, train_data, validation_data, arguments):
    """Train, or continue with the next step."""
    folder = arguments.output_dir
    resume = training.ExactResume(folder / "checkpoints", arguments.save_every)
    history = resume.fit(
        classifier,
        *train_data,
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        validation_data=validation_data,
        verbose=1 if sys.stdout.isatty() else 2,
    )
    common.write_history(folder / "history.csv", history)


# === Step 4: evaluation ===


def evaluate(tags, found):
    """Return the accuracy of words and, for tags such as `B-PER`, the results of entities."""
    pairs = [pair for rows in zip(tags, found, strict=True) for pair in zip(*rows, strict=True)]
    results = {"accuracy": float(np.mean([tag == other for tag, other in pairs]))}
    types = sorted({tag.partition("-")[2] for pair in pairs for tag in pair if "-" in tag})
    if not types:
        return results
    scores = Evaluator(tags, found, tags=types, loader="list").evaluate()
    entities = {"all": scores["overall"]["strict"]}
    entities |= {kind: scores["entities"][kind]["strict"] for kind in types}
    results["entities"] = {
        kind: {name: float(getattr(score, name)) for name in ("precision", "recall", "f1")}
        for kind, score in entities.items()
    }
    return results


def print_results(results):
    print(f"accuracy of words: {100 * results['accuracy']:.1f}")
    for kind, scores in results.get("entities", {}).items():
        values = ", ".join(f"{name} {100 * value:.1f}" for name, value in scores.items())
        print(f"entities, {kind}: {values}")


# === Options ===


def parse_arguments(argv=None):
    parser = common.make_parser(__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--data", nargs=2, metavar=("TRAIN", "VALIDATION"), help="files in CoNLL's format")
    add(
        "--columns",
        nargs=2,
        type=int,
        default=[0, -1],
        metavar=("WORD", "TAG"),
        help="columns of the words and the tags in --data. -1 is the last column",
    )
    add("--preset", help="a pretrained model. Without it, the model is small and random")
    add("--position-encoding", default="diet_rel", help="encoding of the small model")
    add("--sequence-length", type=positive_int, default=32, help="longest sentence, in tokens")
    add("--epochs", type=positive_int, default=10, help="passes over the sentences")
    add("--batch-size", type=positive_int, default=32, help="sentences in a batch")
    add("--learning-rate", type=float, default=3e-3, help="peak learning rate")
    common.add_training_options(add, warmup_proportion=0.1)
    add("--seed", type=int, default=0, help="seed of the weights and of the order of sentences")
    add("--overwrite", action="store_true", help="delete an earlier run in the folder first")
    folder = Path("runs", "tag_words", keras.config.backend())
    add("--output-dir", type=Path, default=folder, help="folder for all results")
    arguments = parser.parse_args(argv)
    arguments.backend, arguments.strategy = keras.config.backend(), "none"
    return arguments


if __name__ == "__main__":
    main()
