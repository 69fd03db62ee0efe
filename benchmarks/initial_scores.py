"""How large positional scores should be at the start: trainings that differ in nothing else.

A run trains the model of the study (`benchmarks.study`) with one encoding, whose parameters are
multiplied so that the first positional scores have a chosen standard deviation. Constant scores of
a query do not count, because softmax removes them. Runs that differ only in this number and in the
seed train at the same time, as copies of one model. After the training, the best of them are
evaluated on longer sequences than they were trained with, and with `--glue` all are fine-tuned.

    KERAS_BACKEND=jax python -m benchmarks.initial_scores --text train/* \
        --validation-text valid/* --output docs/benchmarks/initial_scores.json

To resume, give the same command again: finished runs are kept. `--rows`, `--stddevs`,
`--learning-rates`, `--widths` and `--seeds` choose the runs, and `--change` changes the recipe of
the study. On a GPU, a few `--processes` at the same time hide how long programs take to compile.
The folder `--runs` has the token ids of all texts. Where it exists, the texts are not read again.
"""

import argparse
import concurrent.futures
import functools
import itertools
import json
import math
import multiprocessing
import shlex
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import tqdm
from matplotlib.figure import Figure

from benchmarks import measure, study
from benchmarks.copies import Copies, stack
from benchmarks.example_runs import as_options
from benchmarks.results import (
    date_and_commit,
    head_of_page,
    markdown_table,
    mean_and_deviation,
    write,
)
from keras_diet import analysis, layers, models, pretraining
from keras_diet._arrays import float32_array
from keras_diet.analysis.model_parts import encoder_parts, input_positions
from keras_diet.layers.position.sinusoids import Sinusoids

# The factors of "input, P" and "sinusoidal" multiply the positions, not the scores.
ROWS = {
    **{f"diet_abs, rank {rank}": ("diet_abs", "--rank", str(rank)) for rank in (8, 16, 32, 128)},
    **{name: (name,) for name in ("diet_rel", "t5", "tupe_abs", "fire", "input")},
    "input, P": ("input",),
    **{name: (name,) for name in ("sinusoidal", "none", "alibi", "kerple", "sandwich", "rotary")},
    **{name: (name,) for name in ("shaw", "transformer_xl")},
    # Documents are the segments of a sequence.
    "diet_abs, segments per head": ("diet_abs", "--document-segments"),
    "diet_abs, segments at the input": (
        *("diet_abs", "--document-segments", "--segment-encoding", "input"),
    ),
    "input, segments at the input": ("input", "--document-segments"),
}
# The names of the parameters that a bias layer is linear in, or of two factors.
LINEAR = {
    "RelativePositionBias": ("relative_embedding",),
    "BucketedRelativePositionBias": ("bucket_embedding",),
    "FirePositionBias": ("output_kernel", "output_bias"),
}
FACTORS = {
    "AbsolutePositionBias": ("query_embedding", "key_embedding"),
    "UntiedPositionBias": ("query_kernel", "key_kernel"),
}
LENGTHS = (64, 128, 256, 512)
# Tokens of the held-out text that are evaluated at each length.
EVALUATED = 2**17
TASKS = ("cola", "sst2", "stsb", "rte")


def main(argv: Sequence[str] | None = None) -> None:
    options = parse_arguments(argv)
    results = start(options)
    pack(options)
    done = {key_of(run) for run in results["runs"]}
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for run in runs_of(options):
        if key_of(run) not in done:
            groups.setdefault(group_of(run), []).append(run)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.processes, context) as pool:
        pending = [pool.submit(train_on_device, group, options) for group in groups.values()]
        finished = concurrent.futures.as_completed(pending)
        for future in tqdm.tqdm(finished, total=len(pending), unit="group"):
            results["runs"] += future.result()
            save(options.output, results)
    save(options.output, results)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--text", nargs="+", default=[], help="text files, as in the example")
    add("--validation-text", nargs="+", default=[], help="held-out text files")
    add("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="ROW")
    add("--stddevs", nargs="+", type=stddev, default=[None], metavar="STDDEV or default")
    add("--learning-rates", nargs="+", type=float, default=[0.002])
    add("--widths", nargs="+", type=int, default=[128])
    add("--seeds", nargs="+", type=int, default=[0])
    add("--change", nargs="+", type=lambda text: text.split("="), default=[], metavar="NAME=VALUE")
    add("--lengths", action="store_true", help="evaluate longer sequences")
    add("--glue", help="folder with the files of GLUE; default: no fine-tuning")
    add("--processes", type=int, default=1, help="groups of runs that train at the same time")
    add("--runs", type=Path, default=Path("runs", "initial_scores"), help="folder for the text")
    add("--output", type=Path, required=True, help="JSON file; a page is written beside it")
    options = parser.parse_args(argv)
    changes = {name: type(study.RECIPE[name])(value) for name, value in options.change}
    options.recipe = {**study.RECIPE, **changes}
    return options


def stddev(text: str) -> float | None:
    """Return a standard deviation, or `None` for `default`: as the layers begin."""
    return None if text == "default" else float(text)


def start(options: argparse.Namespace) -> dict[str, Any]:
    """Return the results in the file, or results without runs, with this command."""
    machine = measure.machine()
    settings = {name: value for name, value in options.recipe.items() if "dim" not in name}
    results = {"commands": [], "machine": machine, "settings": settings, "runs": []}
    if options.output.exists():
        results = json.loads(options.output.read_text(encoding="utf-8"))
        if results["settings"] != settings:
            sys.exit(f"{options.output} has other settings. Use another --output.")
    words = [f"KERAS_BACKEND={machine['backend']} python -m benchmarks.initial_scores --text TEXT"]
    words.append("--validation-text VALIDATION")
    for name in ("rows", "stddevs", "learning_rates", "widths", "seeds"):
        values = ["default" if value is None else value for value in getattr(options, name)]
        words += [f"--{name.replace('_', '-')}", *map(shlex.quote, map(str, values))]
    if options.change:
        words += ["--change", *map("=".join, options.change)]
    if options.glue:
        words += ["--glue", "GLUE"]
    results["commands"].append(f"{' '.join(words)} # {date_and_commit(machine)}")
    return results


def runs_of(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the runs that the options choose."""
    names = ("width", "learning_rate", "row", "seed", "stddev")
    values = (
        *(options.widths, options.learning_rates),
        *(options.rows, options.seeds, options.stddevs),
    )
    for combination in itertools.product(*values):
        yield dict(zip(names, combination, strict=True))


def key_of(run: dict[str, Any]) -> tuple:
    return tuple(run[name] for name in ("row", "width", "stddev", "learning_rate", "seed"))


def group_of(run: dict[str, Any]) -> tuple:
    """Return what the runs of a group have in common. Sinusoids are no values of variables."""
    common = run["row"], run["width"], run["learning_rate"]
    return (*common, run["stddev"]) if run["row"] == "sinusoidal" else common


# === Page and pictures ===


def save(path: Path, results: dict[str, Any]) -> None:
    """Write the results, their page, and two pictures."""
    order = list(ROWS)
    results["runs"].sort(
        key=lambda run: (run["width"], order.index(run["row"]), run["stddev"] or 0, run["seed"])
    )
    write(path, results, make_page(results))
    plot_losses(results).savefig(path.with_suffix(".svg"))
    plot_lengths(results).savefig(path.with_name(f"{path.stem}_lengths.svg"))


def settings_of(results: dict[str, Any]) -> dict[tuple, list[dict[str, Any]]]:
    """Return the runs of each setting. They differ in the seed only."""
    settings: dict[tuple, list[dict[str, Any]]] = {}
    for run in results["runs"]:
        settings.setdefault(key_of(run)[:-1], []).append(run)
    return settings


def loss_of(run: dict[str, Any]) -> float:
    return run["losses"][-1]


def mean_loss(runs: list[dict[str, Any]]) -> float:
    return statistics.mean(map(loss_of, runs))


def make_page(results: dict[str, Any]) -> str:
    lines = [
        *head_of_page("The scale of the first positional scores", results),
        "Losses of masked tokens of held-out text, mean and deviation over the seeds. `s` is the",
        'standard deviation of the positional scores before training. For "input, P" and',
        '"sinusoidal", it is the factor of the positions.',
        "",
    ]
    table = [
        [
            *(row, str(width), "as made" if stddev is None else f"{stddev:g}"),
            *("" if runs[0]["first_scores"] is None else f"{runs[0]['first_scores']:.3f}",),
            *(f"{rate:g}", str(len(runs)), mean_and_deviation(map(loss_of, runs), 3)),
        ]
        for (row, width, stddev, rate), runs in settings_of(results).items()
    ]
    columns = ["", "width", "s", "measured", "rate", "seeds", "loss"]
    lines += [*markdown_table(columns, table), "", "## Longer sequences than in training", ""]
    lines += [
        f"Each row has the `s` with the lowest loss, and the same {EVALUATED:,} tokens.",
        "",
    ]
    table = [
        [
            *(f"{row}, {method}", str(width), "" if stddev is None else f"{stddev:g}"),
            *(mean_and_deviation((run["lengths"][method][n] for run in runs), 3) for n in lengths),
        ]
        for (row, width, stddev, _), runs in best_settings(results).items()
        for method, lengths in runs[0]["lengths"].items()
    ]
    columns = ["", "width", "s", *map(str, LENGTHS)]
    return "\n".join([*lines, *markdown_table(columns, table)])


def best_settings(results: dict[str, Any]) -> dict[tuple, list[dict[str, Any]]]:
    """Return the runs with the lowest mean loss of each row and width."""
    best: dict[tuple, tuple] = {}
    settings = settings_of(results)
    for setting in sorted(settings, key=lambda each: mean_loss(settings[each])):
        best.setdefault(setting[:2], setting)
    return {setting: settings[setting] for setting in settings if setting in best.values()}


def plot_losses(results: dict[str, Any]) -> Figure:
    """Draw the loss over the standard deviation of the first scores, with a dot for each seed."""
    widths = sorted({run["width"] for run in results["runs"]})
    figure = Figure(figsize=(4.5 * len(widths) + 2.5, 4), layout="constrained")
    all_axes = figure.subplots(1, len(widths), squeeze=False, sharey=True)[0]
    for axes, width in zip(all_axes, widths, strict=True):
        for number, row in enumerate(ROWS):
            lines = [
                (runs[0]["first_scores"], runs)
                for (name, of_width, stddev, rate), runs in settings_of(results).items()
                if (name, of_width, rate) == (row, width, 0.002) and stddev is not None
            ]
            if len(lines) < 2:
                continue
            lines.sort(key=lambda line: line[0])
            color = f"C{number % 10}"
            places, means = [line[0] for line in lines], [mean_loss(line[1]) for line in lines]
            axes.plot(places, means, color=color, label=row)
            for place, runs in lines:
                axes.plot([place] * len(runs), list(map(loss_of, runs)), ".", color=color)
        axes.set(title=f"width {width}", xscale="log", ylabel="validation loss")
        axes.set_xlabel("standard deviation of the first positional scores")
    all_axes[-1].legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def plot_lengths(results: dict[str, Any]) -> Figure:
    """Draw the loss of longer sequences, for the best scale of each row."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    best = best_settings(results)
    width = min((setting[1] for setting in best), default=None)
    for number, ((row, of_width, *_), runs) in enumerate(best.items()):
        if of_width == width and runs[0]["lengths"]:
            # Repeated positions need no training.
            methods = [
                run["lengths"].get("repeat") or run["lengths"]["interpolate"] for run in runs
            ]
            means = [statistics.mean(losses[str(n)] for losses in methods) for n in LENGTHS]
            style = ("-", "--")[number // 10 % 2]
            axes.plot(LENGTHS, means, style, color=f"C{number % 10}", label=row, marker=".")
    axes.set(xscale="log", xlabel="tokens of a sequence", ylabel="validation loss")
    axes.set_xticks(LENGTHS, [str(n) for n in LENGTHS])
    axes.minorticks_off()
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


# === Data ===


def example() -> Any:
    """Return the modules of the examples. The import chooses the backend."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import common
    import finetune_glue
    import glue_options
    import glue_results
    import glue_tasks
    import pretrain_masked_lm
    import pretrain_options

    return argparse.Namespace(
        common=common,
        finetune=finetune_glue,
        glue_options=glue_options,
        glue_results=glue_results,
        glue_tasks=glue_tasks,
        pretrain=pretrain_masked_lm,
        pretrain_options=pretrain_options,
    )


def arguments_of(run: dict[str, Any], options: argparse.Namespace) -> argparse.Namespace:
    """Return the options of the example for a run."""
    encoding, *words = ROWS[run["row"]]
    sizes = {"hidden-dim": run["width"], "intermediate-dim": 4 * run["width"]}
    rates = {"learning-rate": run["learning_rate"], "seed": run["seed"]}
    words += map(str, as_options({**options.recipe, **sizes, **rates}))
    if options.text:
        words += ["--text", *options.text, "--validation-text", *options.validation_text]
    words += ["--output-dir", str(options.runs)]
    return example().pretrain_options.parse_arguments(["--position-encoding", encoding, *words])


def glue_arguments(options: argparse.Namespace) -> argparse.Namespace:
    words = ["--tasks", *TASKS, "--data", options.glue, *map(str, as_options(study.GLUE))]
    return example().glue_options.parse_arguments([*words, "--learning-rates", "3e-4"])


class Vocabulary:
    """What `masked_lm_dataset` needs of a tokenizer, also where TensorFlow is not installed."""

    def __init__(self, path: Path) -> None:
        self.tokens = path.read_text(encoding="utf-8").splitlines()
        names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
        self.special_token_ids = list(map(self.tokens.index, names))
        self.pad_token_id, _, self.cls_token_id, self.sep_token_id, self.mask_token_id = (
            self.special_token_ids
        )

    def vocabulary_size(self) -> int:
        return len(self.tokens)


def pack(options: argparse.Namespace) -> None:
    """Write the vocabulary, the sequences for training, longer ones, and the texts of GLUE."""
    paths = {length: options.runs / f"evaluation_{length}.npy" for length in LENGTHS}
    glue = {name: options.runs / f"glue_{name}.npz" for name in TASKS if options.glue}
    if all(path.exists() for path in (*paths.values(), *glue.values())):
        return
    options.runs.mkdir(parents=True, exist_ok=True)
    arguments = arguments_of(next(runs_of(options)), options)
    script = example().pretrain
    tokenizer = script.load_tokenizer(arguments)
    script.load_sequences(arguments, tokenizer)
    script.pack(arguments, tokenizer, "validation", script.validation_documents(arguments))
    for length, path in paths.items():
        if not path.exists():
            texts = pretraining.read_documents(options.validation_text)
            sequences = pretraining.pack_sentences(texts, tokenizer, length)
            np.save(path, np.stack(list(itertools.islice(sequences, EVALUATED // length))))
    for name, path in glue.items():
        if not path.exists():
            np.savez_compressed(path, **glue_arrays(name, tokenizer, glue_arguments(options)))


def glue_arrays(name: str, tokenizer: Any, arguments: argparse.Namespace) -> dict[str, np.ndarray]:
    """Return the token ids and labels of both splits of a task."""
    import glue_data

    length = arguments.sequence_length
    preprocessor = models.DietBertTextClassifierPreprocessor(tokenizer, length)
    arrays = {}
    for split in ("train", "validation"):
        most = arguments.examples if split == "train" else None
        texts, labels = glue_data.load(name, split, arguments.data, most)
        inputs = preprocessor(texts)
        arrays |= {f"{split}/{key}": np.asarray(value, "int32") for key, value in inputs.items()}
        arrays[f"{split}/labels"] = np.asarray(labels)
    return arrays


@functools.cache
def masked_batches(
    path: Path, seeds: tuple[int, ...], start: int, stop: int, **options: Any
) -> tuple:
    """Return batches for copies, of the shape `(steps, seeds, batch_size, ...)`."""
    vocabulary = Vocabulary(path.with_name("vocabulary.txt"))
    sequences = np.load(path, mmap_mode="r")
    datasets = [
        pretraining.masked_lm_dataset(sequences, vocabulary, seed=seed, **options) for seed in seeds
    ]
    stop = min(stop, *map(len, datasets))
    return stack([stack([dataset[step] for dataset in datasets]) for step in range(start, stop)])


# === Runs ===


def train_on_device(group: list[dict[str, Any]], options: argparse.Namespace) -> list:
    """Train a group. A GPU would compile each small operation, so it gets the copies only."""
    with jax.default_device(jax.devices("cpu")[0]):
        return train(group, options)


def train(group: list[dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train the runs of a group, and return them with their results."""
    keras.backend.clear_session()
    arguments = arguments_of(group[0], options)
    vocabulary = Vocabulary(options.runs / "vocabulary.txt")
    seeds = tuple(dict.fromkeys(run["seed"] for run in group))
    batches = functools.partial(
        masked_batches,
        seeds=seeds,
        batch_size=arguments.batch_size,
        num_segments=2 if arguments.document_segments else 1,
    )
    interval = arguments.validation_interval
    held_out = functools.partial(batches, start=0, shuffle=False)
    validation = held_out(options.runs / "validation.npy", stop=arguments.validation_batches)
    copies = None
    encoding = ROWS[group[0]["row"]][0]
    if encoding == "sinusoidal":
        encoding = scaled_sinusoids(group[0])
    for seed, runs in itertools.groupby(group, lambda run: run["seed"]):
        keras.utils.set_random_seed(seed)
        masked_lm = example().pretrain.build_model(arguments, encoding, vocabulary)
        weights = masked_lm.get_weights()
        copies = copies or Copies(masked_lm, one_batch(validation))
        for run in runs:
            masked_lm.set_weights(weights)
            run["first_scores"] = scale(masked_lm.backbone, run)
            copies.add(masked_lm, data=seeds.index(seed))
    copies.start()
    losses = []
    for step in range(0, arguments.steps, interval):
        training = options.runs / "train.npy"
        copies.fit(batches(training, start=step, stop=step + interval, repeat=True))
        losses.append(copies.evaluate(validation)["loss"])
    for index, run in enumerate(group):
        run["losses"] = [each[index] for each in losses]
        run["lengths"] = {}
    if options.lengths:
        evaluate_lengths(copies, masked_lm, group, held_out, options, arguments)
    if options.glue:
        finetune(copies, masked_lm, group, options)
    return group


def one_batch(batches: Any) -> Any:
    """Return the first batch of the first seed."""
    inputs, *others = batches
    return {name: array[0, 0] for name, array in inputs.items()}, *(each[0, 0] for each in others)


def evaluate_lengths(copies, masked_lm, group, held_out, options, arguments):
    """Add the losses of longer sequences to the runs with the best standard deviation."""
    if arguments.document_segments or group[0]["row"] == "sinusoidal":
        return
    of_stddevs = {}
    for run in group:
        of_stddevs.setdefault(run["stddev"], []).append(run)
    best = min(of_stddevs.values(), key=mean_loss)
    held_out = functools.partial(held_out, stop=EVALUATED // 4096)
    paths = {length: options.runs / f"evaluation_{length}.npy" for length in LENGTHS}
    first = held_out(
        paths.pop(arguments.sequence_length), batch_size=4096 // arguments.sequence_length
    )
    first_losses = copies.evaluate(first)["loss"]
    absolute = ROWS[group[0]["row"]][0] in ("diet_abs", "input", "tupe_abs")
    for method in ("repeat", "interpolate") if absolute else ("interpolate",):
        longer = None
        for run in best:
            index = group.index(run)
            copies.assign(index, masked_lm)
            model = models.extend_positions(masked_lm, max(LENGTHS), method)
            longer = longer or Copies(model, one_batch(first))
            longer.add(model, data=copies.data[index])
            # Interpolated positions are wrong for the length of the training.
            run["lengths"][method] = {str(arguments.sequence_length): first_losses[index]}
        longer.start()
        for length, path in paths.items():
            losses = longer.evaluate(held_out(path, batch_size=4096 // length))["loss"]
            for run, loss in zip(best, losses, strict=True):
                run["lengths"][method][str(length)] = loss


def finetune(copies, masked_lm, group, options):
    """Fine-tune all copies on each task of GLUE, and add the metrics to the runs."""
    modules, arguments = example(), glue_arguments(options)
    for name in TASKS:
        task = modules.glue_tasks.TASKS[name]
        splits = np.load(options.runs / f"glue_{name}.npz")
        inputs, labels = split_of(splits, "train")
        per_epoch = len(labels) // arguments.batch_size
        classifiers = None
        for index, run in enumerate(group):
            copies.assign(index, masked_lm)
            keras.utils.set_random_seed(run["seed"])
            classifier = models.DietBertTextClassifier(masked_lm.backbone, task.num_classes)
            modules.common.compile_for_training(
                classifier, arguments.learning_rates[0], arguments.epochs * per_epoch, arguments
            )
            if classifiers is None:
                first = {key: array[: arguments.batch_size] for key, array in inputs.items()}
                classifiers = Copies(classifier, (first, labels[: arguments.batch_size]))
            classifiers.add(classifier, data=copies.data[index])
        classifiers.start()
        seeds = dict.fromkeys(run["seed"] for run in group)
        generators = [np.random.default_rng(seed) for seed in seeds]
        for _ in range(arguments.epochs):
            shape = per_epoch, len(generators), arguments.batch_size
            orders = [each.permutation(len(labels))[: shape[0] * shape[2]] for each in generators]
            order = np.stack([each.reshape(shape[0], shape[2]) for each in orders], 1)
            classifiers.fit(({key: array[order] for key, array in inputs.items()}, labels[order]))
        inputs, labels = split_of(splits, "validation")
        # The first examples fill the last batch.
        size = -(-len(labels) // 128)
        full = {
            key: np.resize(array, (size, 128, *array.shape[1:])) for key, array in inputs.items()
        }
        for run, outputs in zip(group, classifiers.predict(full), strict=True):
            found = modules.glue_results.evaluate(outputs[: len(labels)], labels, task)
            run.setdefault("glue", {})[name] = found


def split_of(splits, name):
    """Return the inputs and labels of a split of a task."""
    arrays = {
        key.removeprefix(f"{name}/"): array
        for key, array in splits.items()
        if key.startswith(f"{name}/")
    }
    return arrays, arrays.pop("labels")


def scaled_sinusoids(run):
    """Register sinusoids times a factor, and return their name."""
    factor = 1.0 if run["stddev"] is None else run["stddev"]

    class ScaledSinusoids(Sinusoids):
        def call(self, inputs, start_index=0):
            return factor * super().call(inputs, start_index)

    layers.register_position_encoding(
        "scaled_sinusoids",
        layers.PositionEncoding(
            embedding=lambda sizes, dtype, name: ScaledSinusoids(dtype="float32", name=name)
        ),
    )
    return "scaled_sinusoids"


def scale(backbone: Any, run: dict[str, Any]) -> float | None:
    """Multiply parameters so that the first positional scores have `run["stddev"]`.

    Returns:
        Their standard deviation in the first layer, or `None` if they depend on the tokens.
    """
    if ROWS[run["row"]][0] in ("none", "rotary", "shaw", "transformer_xl"):
        return None
    found = stddev_of_scores(backbone)
    if run["stddev"] is None or run["row"] == "sinusoidal":
        return found
    if run["row"] == "input, P":
        multiply(backbone.input_encoding.position_embedding.trainable_variables, run["stddev"])
    elif run["row"] == "input":
        factor = math.sqrt(run["stddev"] / found)
        for block in backbone.encoder.transformer_layers:
            attention = block.self_attention
            multiply([attention.query_dense.kernel, attention.key_dense.kernel], factor)
    else:
        # A stack has a bias for each layer, or one for all of them.
        for index, bias in enumerate(backbone.encoder.position_biases):
            kind, factor = type(bias).__name__, run["stddev"] / stddev_of_scores(backbone, index)
            multiply([getattr(bias, name) for name in LINEAR.get(kind, ())], factor)
            multiply([getattr(bias, name) for name in FACTORS.get(kind, ())], math.sqrt(factor))
    return stddev_of_scores(backbone)


def stddev_of_scores(backbone: Any, layer: int = 0) -> float:
    """Return the standard deviation of the positional scores of a layer, without `[CLS]`."""
    scores = analysis.position_scores(backbone)[layer][:, 1:, 1:]
    positions = input_positions(encoder_parts(backbone), backbone.max_sequence_length)
    if positions is not None:
        # The first normalization divides tokens and positions by the root of this sum.
        tokens = float32_array(backbone.token_embedding.embeddings)
        scores = scores / (np.square(positions).mean() + np.square(tokens).mean())
    return float((scores - scores.mean(-1, keepdims=True)).std())


def multiply(variables, factor):
    for variable in variables:
        variable.assign(factor * variable)


if __name__ == "__main__":
    main()
