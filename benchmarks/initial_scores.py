"""How large positional scores should be at the start: trainings that differ in nothing else.

A run trains the model of the study (`benchmarks.study`) with one encoding, whose parameters are
multiplied so that the first positional scores have a chosen standard deviation. Constant scores of
a query do not count, because softmax removes them. After the training, the run measures the loss of
longer sequences than it was trained with.

    KERAS_BACKEND=jax python -m benchmarks.initial_scores --text train/* \
        --validation-text valid/* --output docs/benchmarks/initial_scores.json

To resume, give the same command again: finished runs are kept. Each process trains on one core.
`--rows`, `--stddevs`, `--learning-rates`, `--widths` and `--seeds` choose the runs.
"""

import argparse
import concurrent.futures
import functools
import itertools
import json
import math
import multiprocessing
import os
import shlex
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tqdm
from matplotlib.figure import Figure

from benchmarks import measure, study
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


def main(argv: Sequence[str] | None = None) -> None:
    options = parse_arguments(argv)
    results = start(options)
    os.environ.update(OMP_NUM_THREADS="1")
    pack(options)
    done = {key_of(run) for run in results["runs"]}
    wanted = [run for run in runs_of(options) if key_of(run) not in done]
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    for core in range(options.processes):
        cores.put(core)
    with concurrent.futures.ProcessPoolExecutor(
        options.processes, context, initializer=use_one_core, initargs=(cores,)
    ) as pool:
        pending = [pool.submit(train, run, options) for run in wanted]
        finished = concurrent.futures.as_completed(pending)
        for future in tqdm.tqdm(finished, total=len(pending), unit="run"):
            results["runs"].append(future.result())
            save(options.output, results)
    save(options.output, results)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--text", nargs="+", required=True, help="text files, as in the example")
    add("--validation-text", nargs="+", required=True, help="held-out text files")
    add("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="ROW")
    add("--stddevs", nargs="+", type=float, default=[None], help="default: as the layers begin")
    add("--learning-rates", nargs="+", type=float, default=[0.002])
    add("--widths", nargs="+", type=int, default=[128])
    add("--seeds", nargs="+", type=int, default=[0])
    add("--processes", type=int, default=os.cpu_count(), help="each uses one core")
    add("--runs", type=Path, default=Path("runs", "initial_scores"), help="folder for the text")
    add("--output", type=Path, required=True, help="JSON file; a page is written beside it")
    return parser.parse_args(argv)


def start(options: argparse.Namespace) -> dict[str, Any]:
    """Return the results in the file, or results without runs, with this command."""
    machine = measure.machine("cpu")
    results = {"commands": [], "machine": machine, "settings": study.RECIPE, "runs": []}
    if options.output.exists():
        results = json.loads(options.output.read_text(encoding="utf-8"))
    words = [f"KERAS_BACKEND={machine['backend']} python -m benchmarks.initial_scores --text TEXT"]
    words.append("--validation-text VALIDATION")
    for name in ("rows", "stddevs", "learning_rates", "widths", "seeds"):
        values = [value for value in getattr(options, name) if value is not None]
        if values:
            words += [f"--{name.replace('_', '-')}", *map(shlex.quote, map(str, values))]
    results["commands"].append(f"{' '.join(words)} # {date_and_commit(machine)}")
    return results


def runs_of(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the runs that the options choose, the first seed of all rows before the second."""
    names = ("seed", "width", "learning_rate", "stddev", "row")
    values = (
        *(options.seeds, options.widths, options.learning_rates),
        *(options.stddevs, options.rows),
    )
    for combination in itertools.product(*values):
        yield dict(zip(names, combination, strict=True))


def key_of(run: dict[str, Any]) -> tuple:
    return tuple(run[name] for name in ("row", "width", "stddev", "learning_rate", "seed"))


def use_one_core(cores: Any) -> None:
    """Let this process compute on one core that no other process uses."""
    os.sched_setaffinity(0, {cores.get()})


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
    """Return the example that pretrains, and its options. The import chooses the backend."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import pretrain_masked_lm
    import pretrain_options

    return pretrain_masked_lm, pretrain_options


def arguments_of(run: dict[str, Any], options: argparse.Namespace) -> argparse.Namespace:
    """Return the options of the example for a run."""
    encoding, *words = ROWS[run["row"]]
    sizes = {"hidden-dim": run["width"], "intermediate-dim": 4 * run["width"]}
    rates = {"learning-rate": run["learning_rate"], "seed": run["seed"]}
    words += map(str, as_options({**study.RECIPE, **sizes, **rates}))
    words += ["--text", *options.text, "--validation-text", *options.validation_text]
    words += ["--output-dir", str(options.runs), "--save-every", "1000"]
    return example()[1].parse_arguments(["--position-encoding", encoding, *words])


def pack(options: argparse.Namespace) -> None:
    """Write the vocabulary, the sequences for training, and longer ones for evaluation."""
    options.runs.mkdir(parents=True, exist_ok=True)
    arguments = arguments_of(next(runs_of(options)), options)
    script = example()[0]
    tokenizer = script.load_tokenizer(arguments)
    script.load_sequences(arguments, tokenizer)
    script.pack(arguments, tokenizer, "validation", script.validation_documents(arguments))
    for length in LENGTHS:
        path = options.runs / f"evaluation_{length}.npy"
        if not path.exists():
            texts = pretraining.read_documents(options.validation_text)
            sequences = pretraining.pack_sentences(texts, tokenizer, length)
            np.save(path, np.stack(list(itertools.islice(sequences, EVALUATED // length))))


# === A run ===


def train(run: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return a run with its losses, and the standard deviation of its first positional scores."""
    keras.backend.clear_session()
    script, _ = example()
    arguments = arguments_of(run, options)
    tokenizer = script.load_tokenizer(arguments)
    keras.utils.set_random_seed(run["seed"])
    encoding = scaled_sinusoids(run) if run["row"] == "sinusoidal" else ROWS[run["row"]][0]
    masked_lm = script.build_model(arguments, encoding, tokenizer)
    first_scores = scale(masked_lm.backbone, run)
    sequences, validation = (
        np.load(options.runs / f"{name}.npy", mmap_mode="r") for name in ("train", "validation")
    )
    batches = functools.partial(
        pretraining.masked_lm_dataset,
        tokenizer=tokenizer,
        batch_size=study.RECIPE["batch-size"],
        seed=run["seed"],
        num_segments=1,
    )
    dataset = batches(sequences, repeat=True)
    held_out = batches(validation, shuffle=False)[: arguments.validation_batches]
    losses = []
    for start in range(0, study.RECIPE["steps"], study.RECIPE["validation-interval"]):
        # With `validation_data`, TensorFlow waits for data half of the time on one core.
        steps = dataset[start : start + study.RECIPE["validation-interval"]]
        masked_lm.fit(steps, shuffle=False, verbose=0)
        losses.append(masked_lm.evaluate(held_out, verbose=0)[0])
    return {
        **run,
        "first_scores": first_scores,
        "losses": losses,
        "lengths": evaluate(masked_lm, tokenizer, options, run),
    }


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
    if backbone.input_encoding is not None:
        # The first normalization divides tokens and positions by the root of this sum.
        positions = input_positions(encoder_parts(backbone), backbone.max_sequence_length)
        tokens = float32_array(backbone.token_embedding.embeddings)
        scores = scores / (np.square(positions).mean() + np.square(tokens).mean())
    return float((scores - scores.mean(-1, keepdims=True)).std())


def multiply(variables, factor):
    for variable in variables:
        variable.assign(factor * variable)


def evaluate(masked_lm, tokenizer, options, run):
    """Return the loss of held-out text in sequences of each length, for each way to extend."""
    if run["row"] == "sinusoidal" and run["stddev"] is not None:
        return {}
    losses = {}
    encoding = ROWS[run["row"]][0]
    absolute = encoding in ("diet_abs", "input", "tupe_abs")
    for method in ("repeat", "interpolate") if absolute else ("interpolate",):
        longer = models.extend_positions(masked_lm, max(LENGTHS), method)
        for length in LENGTHS:
            sequences = np.load(options.runs / f"evaluation_{length}.npy")
            batches = pretraining.masked_lm_dataset(
                sequences, tokenizer, 4096 // length, seed=0, shuffle=False, num_segments=1
            )
            # Interpolated positions are wrong for the length of the training.
            model = masked_lm if length == study.RECIPE["sequence-length"] else longer
            loss = model.evaluate(batches, verbose=0)[0]
            losses.setdefault(method, {})[str(length)] = loss
    return losses


if __name__ == "__main__":
    main()
