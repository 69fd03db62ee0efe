"""Fine-tune several models on MNLI, and evaluate them on XNLI, language by language.

The script trains a classifier of sentence pairs for each model, learning rate and seed on English
text, and never on another language. So the other languages show what a model has learned about them
in pretraining (section 4.2 of Chen et al., EMNLP 2021). At the end you see a table with the median
accuracy of each language over the seeds, at the learning rate that is best on the first language.

    python -m examples.paper.finetune_xnli
    python -m examples.paper.finetune_xnli --presets runs/diet_rel/preset --mnli GLUE \\
        --test test-en.tsv test-de.tsv test-sw.tsv --test-labels test-labels.txt \\
        --sequence-length 512 --epochs 3 --batch-size 32 --learning-rates 1e-5 2e-5 3e-5 4e-5 \\
        --seeds 0 1 2 3 4

The second command has the recipe of the paper (appendix A, Table 7: multilingual; section 4.2: five
trials). The paper names no optimizer for fine-tuning. AdamW and linear decay follow BERT. `--train`
takes a file in XNLI's form instead of MNLI. Without options, small random models learn to compare
sentences that a rule makes. This takes two minutes of CPU time on JAX. PyTorch takes longer,
because the script does not compile there.

Each finished run adds a line to `runs.csv` in the output folder. To resume after an interruption,
give the same command again: finished runs are not repeated, and the run that was interrupted
continues at its last checkpoint. `results.csv`, `results.md` and `results.png` summarize the runs
with the same options. The script needs `keras-diet[examples]`.
"""

import itertools
import statistics
import sys

import keras
import keras_hub
import numpy as np
from tqdm import tqdm

from examples.paper import common, run_table, xnli_data
from examples.paper.common import positive_int
from examples.paper.run_table import RunTable, at_best_rate, spread
from keras_diet import models, pretraining, training

TABLE = RunTable(
    varied=("model", "learning_rate", "seed"),
    options=(
        *("epochs", "batch_size", "sequence_length", "warmup_proportion", "weight_decay"),
        *("optimizer", "accumulation_steps", "examples", "add_segments", "backend"),
        *("mnli", "train", "test", "test_labels"),
    ),
)


def main(argv=None):
    arguments = parse_arguments(argv)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    path = arguments.output_dir / "runs.csv"
    train, tests = load_data(arguments)
    grid = itertools.product(arguments.models, arguments.learning_rates, arguments.seeds)
    missing = TABLE.missing(path, arguments, grid)
    for run in tqdm(missing, unit="run", disable=not sys.stderr.isatty()):
        classifier = train_model(run, train, arguments, TABLE.checkpoints(path, run))
        found = {language: accuracy(classifier, pairs) for language, pairs in tests.items()}
        names = ("model", "learning_rate", "seed")
        text = TABLE.append(path, run, found)
        tqdm.write(", ".join(str(run[name]) for name in names) + f": {text}")
    runs = TABLE.with_options(path, arguments)
    rows = summarize([run for run in runs if run["model"] in arguments.models])
    run_table.write_summary(rows, arguments.output_dir)
    print((arguments.output_dir / "results.md").read_text(encoding="utf-8"))


# === Step 1: data and models ===


def load_data(arguments):
    """Return the training pairs, and the pairs of each language."""
    most = arguments.examples
    if arguments.mnli:
        train = xnli_data.read_mnli(arguments.mnli, most)
    elif arguments.train:
        train = xnli_data.read(arguments.train, most=most)
    else:
        tests = {name: xnli_data.embedded("test", name) for name in xnli_data.WORDS}
        return xnli_data.embedded("train", "en", most), tests
    files, labels = xnli_data.by_language(arguments.test), arguments.test_labels
    return train, {name: xnli_data.read(file, labels) for name, file in files.items()}


def make_classifier(model, arguments):
    if arguments.presets:
        # The tokenizer of the preset: WordPiece, or SentencePiece for many languages.
        tokenizer = keras_hub.models.Tokenizer.from_preset(model)
        backbone = models.DietBertBackbone.from_preset(model, recompute=arguments.recompute)
        backbone = models.add_segments(backbone) if arguments.add_segments else backbone
    else:
        tokenizer, backbone = small_model(model, arguments)
    preprocessor = models.DietBertTextClassifierPreprocessor(tokenizer, arguments.sequence_length)
    return models.DietBertTextClassifier(
        backbone, preprocessor=preprocessor, num_classes=len(xnli_data.CLASSES)
    )


def small_model(position_encoding, arguments):
    """Return a tokenizer for the embedded task, and a small random backbone."""
    sets = [xnli_data.embedded("train", language) for language in xnli_data.WORDS]
    texts = [text for pairs in sets for text in (*pairs.premises, *pairs.hypotheses)]
    tokenizer = models.DietBertTokenizer(
        pretraining.train_wordpiece_vocabulary(texts, 200, show_progress=False)
    )
    backbone = models.DietBertBackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=2,
        num_heads=4,
        hidden_dim=64,
        intermediate_dim=128,
        max_sequence_length=arguments.sequence_length,
        position_encoding=position_encoding,
        segment_encoding="per-head" if position_encoding.startswith("diet") else "input",
        recompute=arguments.recompute,
    )
    return tokenizer, backbone


# === Step 2: a run ===


def train_model(run, train, arguments, folder):
    """Return a classifier that was trained on English pairs.

    If there are checkpoints in the folder, the training continues there.
    """
    keras.utils.set_random_seed(run["seed"])
    classifier = make_classifier(run["model"], arguments)
    num_batches = arguments.epochs * -(-len(train.labels) // arguments.batch_size)
    common.compile_for_training(classifier, run["learning_rate"], num_batches, arguments)
    resume = training.ExactResume(folder, arguments.save_every)
    resume.fit(
        classifier,
        (train.premises, train.hypotheses),
        train.labels,
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        verbose=2 if arguments.verbose else 0,
    )
    return classifier


def accuracy(classifier, pairs):
    """Return the percentage of pairs whose class is found."""
    logits = classifier.predict((pairs.premises, pairs.hypotheses), verbose=0)
    return 100 * float(np.mean(np.argmax(logits, axis=-1) == np.array(pairs.labels)))


def summarize(runs):
    """Return a row for each model and language, and for the mean of the languages."""
    rows = []
    for model in dict.fromkeys(run["model"] for run in runs):
        of_model = [run for run in runs if run["model"] == model]
        rate, found = at_best_rate(of_model, lambda values: next(iter(values)))
        found = [{**values, "mean": statistics.mean(values.values())} for values in found]
        for language in found[0]:
            keys = {"task": language, "metric": "accuracy", "model": model, "learning_rate": rate}
            rows.append({**keys, **spread([values[language] for values in found])})
    return rows


# === Options ===


def parse_arguments(argv=None):
    parser = common.make_parser(__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--presets", nargs="+", metavar="PRESET", help="folders, names or addresses of presets")
    add(
        "--position-encoding",
        nargs="+",
        default=["diet_rel", "diet_abs", "input"],
        help="encodings of the random models",
    )
    add("--mnli", help="train on MNLI: a folder with GLUE's files, tfds, or datasets")
    add("--train", metavar="FILE", help="train on a file in XNLI's form")
    add("--test", nargs="+", default=[], metavar="FILE", help="files such as test-sw.tsv")
    add("--test-labels", metavar="FILE", help="the labels of all --test files, as in XTREME")
    add("--sequence-length", type=positive_int, help="tokens, by default 128, embedded 16")
    add("--learning-rates", nargs="+", type=float, default=[1e-3], help="peak rates to try")
    add("--seeds", nargs="+", type=int, default=[0], help="one run for each rate and seed")
    add("--epochs", type=positive_int, default=12, help="passes over the pairs")
    add("--batch-size", type=positive_int, default=16, help="pairs in a batch")
    common.add_training_options(add, warmup_proportion=0.1)
    add("--examples", type=positive_int, help="most training pairs; default: all")
    add("--add-segments", action="store_true", help="add segments to presets without segments")
    add("--verbose", action="store_true", help="print the loss of each epoch")
    common.add_output_option(add, "finetune_xnli", "folder for all results")
    arguments = parser.parse_args(argv)
    if arguments.mnli and arguments.train:
        parser.error("--mnli and --train exclude each other. Received: both")
    if bool(arguments.mnli or arguments.train) != bool(arguments.test):
        parser.error("--mnli and --train need --test, and the reverse")
    has_files = bool(arguments.test)
    if arguments.test_labels and not has_files:
        parser.error("--test-labels needs --test. Received: --test-labels alone")
    arguments.models = arguments.presets or arguments.position_encoding
    arguments.sequence_length = arguments.sequence_length or (128 if has_files else 16)
    arguments.backend, arguments.strategy = keras.config.backend(), "none"
    return arguments


if __name__ == "__main__":
    main()
