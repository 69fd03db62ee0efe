"""Train a model of sentence embeddings, evaluate it, and search texts with it.

The training has up to two stages. In the first one the texts of a pair, such as a sentence and what
follows from it, shall be nearer to each other than to the texts of other pairs. In the second one
the cosines of pairs shall have the order of scores that people gave. Without data the script does
the first stage with neighboring sentences of the language reference that ships with every Python.
This needs no network, and takes about two minutes of CPU time on JAX.

    python -m examples.paper.train_embedder \\
        --query "how do I open a file" "remove an item from a list"
    python -m examples.paper.train_embedder --encoder all-MiniLM-L6-v2 --nli xnli.dev.en.tsv \\
        --stsb stsbenchmark --learning-rate 2e-5 --batch-size 32

`--encoder` is a preset, or a folder of Hugging Face or sentence-transformers. Before and after each
stage, the script measures the correlations with the scores of STS-B's test set, or how often a
sentence finds its neighbor. The results are a table and a plot, and the embedder is saved as a
preset and as a folder of sentence-transformers, if it has such a form. To resume an interrupted
run, give the same command again: training continues at the last checkpoint. The script needs
`keras-diet[examples]`.
"""

import csv
import itertools
import json
import re
import sys
from pathlib import Path

import keras
import numpy as np
from matplotlib.figure import Figure

from examples.paper import common, xnli_data
from examples.paper.common import positive_int
from keras_diet import metrics, models, training

TINY = "diet_bert_tiny_en"
LENGTH_BUCKETS = (16, 32, 64, 128, 256)


def main(argv=None):
    arguments = parse_arguments(argv)
    folder = arguments.output_dir
    options = {
        name: json.loads(json.dumps(value, default=str))
        for name, value in vars(arguments).items()
        if name not in ("output_dir", "overwrite", "save_every", "query")
    }
    common.claim_output_dir(folder, options, arguments.overwrite)
    keras.utils.set_random_seed(arguments.seed)
    embedder = load_encoder(arguments)
    paragraphs = read_paragraphs(arguments)
    evaluate = evaluation(paragraphs, arguments)
    results = {"before": evaluate(embedder)}
    print_results("before", results["before"])
    histories = {}
    for name, (loss, data) in stages(paragraphs, arguments).items():
        histories[name] = train(embedder, name, loss, data, arguments)
        results[f"after {name}"] = evaluate(embedder)
        print_results(f"after {name}", results[f"after {name}"])
    save(embedder, results, histories, folder)
    print(f"Preset, table and plot are in {folder}.")
    search(embedder, paragraphs, arguments.query)


# === Step 1: the model ===


def load_encoder(arguments):
    """Return an embedder from a folder of Hugging Face or from a preset."""
    source = Path(arguments.encoder)
    is_preset = not source.is_dir() or (source / "metadata.json").is_file()
    cls = models.DietBertTextEmbedder
    load = cls.from_preset if is_preset else cls.from_hugging_face
    embedder = load(arguments.encoder, num_chunks=arguments.num_chunks)
    preprocessor = embedder.preprocessor
    length = min(arguments.sequence_length, embedder.backbone.max_sequence_length)
    preprocessor.sequence_length = length
    preprocessor.length_buckets = tuple(n for n in LENGTH_BUCKETS if n < length) or None
    return embedder


# === Step 2: data ===


def read_paragraphs(arguments):
    """Return the paragraphs of the text, each as a list of two sentences or more."""
    paragraphs = itertools.chain.from_iterable(common.read_text(arguments.text))
    sentences = (re.split(r"(?<=[.!?])\s+", paragraph) for paragraph in paragraphs)
    kept = ([each for each in parts if len(each) > 20] for parts in sentences)
    return [parts for parts in kept if len(parts) > 1]


def neighbors(paragraphs):
    """Return the first sentences of paragraphs, and the sentences behind them."""
    return [parts[0] for parts in paragraphs], [parts[1] for parts in paragraphs]


def split(paragraphs):
    """Return paragraphs to train with, and the tenth that is held out."""
    held_out = paragraphs[::10]
    return [p for i, p in enumerate(paragraphs) if i % 10], held_out


def entailed(file, labels):
    """Return premises, entailed sentences and contradictions, from XNLI's file."""
    found = {}
    pairs = xnli_data.read(file, labels)
    rows = zip(pairs.premises, pairs.hypotheses, pairs.labels, strict=True)
    for premise, hypothesis, label in rows:
        found.setdefault(premise, {})[xnli_data.CLASSES[label]] = hypothesis
    triplets = [
        (premise, kinds["entailment"], kinds["contradiction"])
        for premise, kinds in found.items()
        if {"entailment", "contradiction"} <= set(kinds)
    ]
    return tuple(map(list, zip(*triplets, strict=True)))


def read_stsb(source, name):
    """Return the first texts, the second texts and the scores of a split of STS-B."""
    if source == "datasets":
        import datasets

        name = {"dev": "validation"}.get(name, name)
        rows = datasets.load_dataset("sentence-transformers/stsb", split=name)
        return (list(rows["sentence1"]), list(rows["sentence2"])), np.array(rows["score"])
    with (Path(source) / f"sts-{name}.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    texts = [row[5] for row in rows], [row[6] for row in rows]
    return texts, np.array([float(row[4]) for row in rows])


def stages(paragraphs, arguments):
    """Return the loss and the data of each stage, by its name."""
    found = {}
    ranking = training.MultipleNegativesRankingLoss()
    if arguments.nli:
        found["entailment"] = (ranking, (entailed(arguments.nli, arguments.nli_labels), None))
    elif not arguments.stsb:
        x = neighbors(split(paragraphs)[0])
        # A single pair has no negatives.
        number = len(x[0]) - (len(x[0]) % arguments.batch_size == 1)
        found["neighbors"] = (ranking, (tuple(part[:number] for part in x), None))
    if arguments.stsb:
        found["scores"] = (training.CoSENTLoss(), read_stsb(arguments.stsb, "train"))
    return found


# === Step 3: training ===


def train(embedder, name, loss, data, arguments):
    """Train, or continue with the next step, and return the history."""
    folder = arguments.output_dir / name
    x, y = data
    steps = arguments.epochs * -(-len(x[0]) // arguments.batch_size)
    common.compile_for_training(embedder, arguments.learning_rate, steps, arguments, loss=loss)
    print(f"{name}: {len(x[0]):,} examples")
    resume = training.ExactResume(folder / "checkpoints", arguments.save_every)
    history = resume.fit(
        embedder,
        x,
        y,
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        verbose=1 if sys.stdout.isatty() else 2,
    )
    common.write_history(folder / "history.csv", history)
    return history.history["loss"]


# === Step 4: evaluation ===


def evaluation(paragraphs, arguments):
    """Return a function that measures an embedder."""
    if arguments.stsb:
        (first, second), scores = read_stsb(arguments.stsb, "test")

        def correlations(embedder):
            a, b = (np.asarray(embedder.encode_text(each, verbose=0)) for each in (first, second))
            return metrics.correlation_metrics(scores, np.sum(a * b, axis=-1))

        return correlations
    first, second = neighbors(split(paragraphs)[1])
    relevant = [[i] for i in range(len(first))]

    def retrieval(embedder):
        a, b = (embedder.encode_text(each, verbose=0) for each in (first, second))
        return metrics.retrieval_metrics(embedder.similarity(a, b), relevant, k=(1, 10))

    return retrieval


def print_results(name, results):
    print(f"{name}: " + ", ".join(f"{key} {value:.4f}" for key, value in results.items()))


def save(embedder, results, histories, folder):
    """Write the embedder, the results as JSON and as a table, and a plot."""
    embedder.save_to_preset(folder / "preset")
    try:
        embedder.export_to_hugging_face(folder / "sentence_transformers")
    except ValueError as error:
        print(f"No folder of sentence-transformers was written. {str(error).splitlines()[0]}")
    (folder / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    names = list(results["before"])
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for name, row in results.items():
        lines.append(f"| {name} | {' | '.join(f'{row[key]:.4f}' for key in names)} |")
    (folder / "results.md").write_text("\n".join(lines) + "\n")
    figure = Figure(figsize=(3.5 * (len(histories) + 1), 3), layout="tight")
    bars, *axes = figure.subplots(1, len(histories) + 1)
    bars.bar(list(results), [row[names[-1]] for row in results.values()], color="tab:blue")
    bars.set_ylabel(names[-1])
    for axis, (name, losses) in zip(axes, histories.items(), strict=True):
        axis.plot(range(1, len(losses) + 1), losses, marker="o")
        axis.set(title=name, xlabel="epoch", ylabel="loss")
    figure.savefig(folder / "plot.png", dpi=150)


def search(embedder, paragraphs, queries):
    """Print the two paragraphs that are nearest to each query."""
    if not queries:
        return
    texts = list(dict.fromkeys(" ".join(parts) for parts in paragraphs))
    documents = embedder.encode_documents(texts)
    similarities = embedder.similarity(embedder.encode_text(queries), documents)
    for query, row in zip(queries, keras.ops.convert_to_numpy(similarities), strict=True):
        print(f"\n{query}")
        for i in np.argsort(-row)[:2]:
            print(f"  {row[i]:.3f}  {texts[i]:.150}")


# === Options ===


def parse_arguments(argv=None):
    parser = common.make_parser(__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--encoder", default=TINY, help="preset, or folder of a trained encoder of Hugging Face")
    add("--text", nargs="+", metavar="FILE", help=common.TEXT_HELP)
    add("--nli", type=Path, help="file of XNLI: premise, hypothesis and label in each line")
    add("--nli-labels", type=Path, help="file with the labels, if they are not in --nli")
    add("--stsb", help="folder with sts-train.tsv and sts-test.tsv, or datasets")
    add("--query", nargs="+", default=[], help="what to search for in the text")
    add("--sequence-length", type=positive_int, default=128, help="longest text, in tokens")
    add("--epochs", type=positive_int, default=1, help="passes over the data of a stage")
    add("--batch-size", type=positive_int, default=64, help="examples in a batch")
    add("--num-chunks", type=positive_int, help="parts of a batch, to save memory (GradCache)")
    add("--learning-rate", type=float, default=2e-4, help="peak learning rate")
    common.add_training_options(add, warmup_proportion=0.1)
    add("--seed", type=int, default=0, help="seed of the order of examples")
    add("--overwrite", action="store_true", help="delete an earlier run in the folder first")
    common.add_output_option(add, "train_embedder", "folder for all results")
    arguments = parser.parse_args(argv)
    arguments.backend, arguments.strategy = keras.config.backend(), "none"
    return arguments


if __name__ == "__main__":
    main()
