"""Draw what trained models have learned about positions: Figures 2 and 4 to 8 of the DIET paper.

Pass presets of masked language models, such as `pretrain_masked_lm.py` writes. Presets of
KerasHub's BERT work too. Each picture shows all models side by side: ranks of attention scores and
of positional scores, maps of positional scores with and without segments, heads that look ahead and
back, and the similarity of input positions. The script prints what a model does not have and leaves
it out. At the end you see a table. `figures.json` holds the numbers behind the pictures. Without
arguments the script draws `diet_bert_tiny_en`, a small model that comes with the library.

    python -m examples.paper.inspect_positions
    python -m examples.paper.inspect_positions runs/input/preset runs/diet_abs/preset \\
        --output-dir figures
    python -m examples.paper.inspect_positions BERT=a/preset DIET=b/preset \\
        --text wiki.txt --heads 0 3
"""

import functools
import json
import sys
from pathlib import Path

import keras_hub
import numpy as np

from examples.paper import common
from examples.paper.common import positive_int
from keras_diet import analysis, models

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def main(argv=None):
    arguments = parse_arguments(argv)
    # In half precision rounding errors would make the rank of all scores full.
    models = {
        label: keras_hub.models.MaskedLM.from_preset(str(path), dtype="float32")
        for label, path in arguments.presets.items()
    }
    check_sizes(models, arguments)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)

    # Each figure returns its numbers, in a dictionary with an entry for each model.
    rank_of_scores = figure_2(models, arguments)
    position_scores = figure_4(models, arguments)
    position_similarity = figure_5(models, arguments)
    segment_scores = figure_6(models, arguments)
    distances = figure_7(position_scores, arguments)
    rank_of_position_scores = figure_8(position_scores, arguments)
    numbers = {
        # The mean over the batch, for each layer and head.
        "rank_of_scores": {label: ranks.mean(axis=1) for label, ranks in rank_of_scores.items()},
        "rank_of_position_scores": rank_of_position_scores,
        **distances,
        "position_similarity": position_similarity,
        "segment_scores": segment_scores,
    }
    summary = {
        label: {
            "preset": str(arguments.presets[label]),
            "position_encoding": position_encoding(model),
            **{name: as_json(arrays.get(label)) for name, arrays in numbers.items()},
        }
        for label, model in models.items()
    }
    options = {name: getattr(arguments, name) for name in ("length", "batch_size", "layer", "seed")}
    text = json.dumps({**options, "text": arguments.text, "models": summary}, indent=1)
    (arguments.output_dir / "figures.json").write_text(text + "\n")
    print_table(summary, arguments.layer)
    print(f"Pictures and figures.json are in {arguments.output_dir}.")


def check_sizes(models, arguments):
    """Choose the length, and check that every model has it and the layer and heads."""
    longest = {label: model.backbone.max_sequence_length for label, model in models.items()}
    arguments.length = arguments.length or min(longest.values())
    for label, model in models.items():
        num_layers, num_heads = model.backbone.num_layers, model.backbone.num_heads
        if not 3 <= arguments.length <= longest[label]:
            sys.exit(f"--length must be from 3 to {longest[label]} for {label}.")
        if not 0 <= arguments.layer < num_layers:
            sys.exit(f"--layer must be from 0 to {num_layers - 1} for {label}.")
        if not all(0 <= head < num_heads for head in arguments.heads or ()):
            sys.exit(f"--heads must be from 0 to {num_heads - 1} for {label}.")


# === The figures ===


def for_each(what, compute, values):
    """Return `compute(value)` for each label. Print why a model is left out."""
    results = {}
    for label, value in values.items():
        try:
            results[label] = compute(value)
        except ValueError as error:
            print(f"{what} without {label}: {error}")
    return results


def save_figure(name, plot, results, title, arguments):
    path = arguments.output_dir / name
    # A picture of an earlier run would look like a result of this run.
    path.unlink(missing_ok=True)
    if not results:
        print(f"No {name}: no model has what it shows.")
        return
    figure = plot(results)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


def save_maps(name, scores, title, arguments, heads=None):
    plot = functools.partial(
        analysis.plot_scores, layers=[arguments.layer], heads=heads or arguments.heads
    )
    save_figure(name, plot, scores, title, arguments)


def figure_2(models, arguments):
    """Draw the rank of the attention scores of each sequence in a batch."""

    def ranks(model):
        batch = common.draw_batch(model.preprocessor.tokenizer, arguments)
        return analysis.numerical_rank(analysis.attention_scores(model, batch))

    results = for_each("Figure 2", ranks, models)
    size = f"{arguments.batch_size} sequences of {arguments.length} tokens"
    plot = functools.partial(analysis.plot_ranks, layers=[arguments.layer])
    title = f"Rank of the attention scores of {size}"
    save_figure("figure_2_rank_of_scores.png", plot, results, title, arguments)
    return results


def figure_4(models, arguments):
    """Draw the positional scores of some heads. Column 0 holds the scores of the key `[CLS]`."""
    compute = functools.partial(analysis.position_scores, length=arguments.length)
    scores = for_each("Figures 4, 7 and 8", compute, models)
    save_maps("figure_4_position_scores.png", scores, "Positional scores", arguments)
    return scores


def figure_5(models, arguments):
    """Draw how similar positions at the input are. Return the mean and quantiles of all pairs."""
    similarities = for_each("Figure 5", analysis.position_similarity, models)
    plot, title = analysis.plot_position_similarity, "Similarity of the positions at the input"
    save_figure("figure_5_position_similarity.png", plot, similarities, title, arguments)
    results = {}
    for label, array in similarities.items():
        pairs = array[np.triu_indices(len(array), k=1)]
        quantiles = {str(q): float(np.quantile(pairs, q)) for q in QUANTILES}
        results[label] = {"mean": float(pairs.mean()), "quantiles": quantiles}
    return results


def figure_6(models, arguments):
    """Draw the sum of positional and segment scores. Return the segment scores."""
    length = min(32, arguments.length)
    segment_ids = (np.arange(length) >= length // 2).astype(int)
    segment_scores = for_each("Figure 6", analysis.segment_scores, models)
    compute = functools.partial(analysis.position_and_segment_scores, segment_ids=segment_ids)
    sums = for_each("Figure 6", compute, {label: models[label] for label in segment_scores})
    title = "Positional and segment scores, the second half in segment 1"
    save_maps("figure_6_position_and_segment_scores.png", sums, title, arguments)
    return segment_scores


def figure_7(position_scores, arguments):
    """Draw the head that looks ahead most and the head that looks back most."""
    variance = for_each("Figure 7", analysis.distance_variance, position_scores)
    # Scores of projected keys have no distances. `for_each` leaves them out.
    scores = {label: position_scores[label] for label in variance}
    distance, signed = (
        {label: analysis.attended_distance(scores[label], signed=signed) for label in scores}
        for signed in (False, True)
    )
    of_layer = {label: array[arguments.layer] for label, array in signed.items()}
    heads = {label: [int(x.argmax()), int(x.argmin())] for label, x in of_layer.items()}
    title = "Looking ahead (left) and back (right)"
    save_maps("figure_7_shifting_patterns.png", scores, title, arguments, heads)
    return {
        "distance_variance": variance,
        "attended_distance": distance,
        "signed_attended_distance": signed,
    }


def figure_8(position_scores, arguments):
    """Draw the rank of the positional scores."""
    ranks = {label: analysis.numerical_rank(array) for label, array in position_scores.items()}
    title = f"Rank of the positional scores of {arguments.length} positions"
    save_figure(
        "figure_8_rank_of_position_scores.png", analysis.plot_ranks, ranks, title, arguments
    )
    return ranks


# === The numbers ===


def as_json(value):
    """Return an array as a list, with `None` for numbers that are not defined."""
    if not isinstance(value, np.ndarray):
        return value
    return np.where(np.isnan(value), None, value).tolist()


def position_encoding(model):
    """Return the name of the encoding. KerasHub's BERT has a layer under this attribute."""
    encoding = getattr(model.backbone, "position_encoding", "input")
    return encoding if isinstance(encoding, str) else type(encoding).__name__


def print_table(summary, layer):
    """Print means over the heads of one layer, and over all pairs of input positions."""
    columns = {
        "rank of scores": "rank_of_scores",
        "of positions": "rank_of_position_scores",
        "by distance": "distance_variance",
        "tokens away": "attended_distance",
    }
    width = max(len("model"), *map(len, summary)) + 2
    print(f"\nLayer {layer}, means over its heads; similarity of input positions:")
    print("model".ljust(width) + "".join(f"{name:>16}" for name in (*columns, "similarity")))
    for label, values in summary.items():
        cells = []
        for name in columns.values():
            of_heads = [] if values[name] is None else values[name][layer]
            of_heads = [value for value in of_heads if value is not None]
            cells.append(f"{np.mean(of_heads):.2f}" if of_heads else "-")
        similarity = values["position_similarity"]
        cells.append("-" if similarity is None else f"{similarity['mean']:.2f}")
        print(label.ljust(width) + "".join(f"{cell:>16}" for cell in cells))


# === Options ===


def parse_arguments(argv=None):
    parser = common.make_parser(__doc__.split("\n\n")[0])
    add = parser.add_argument
    add(
        "presets",
        nargs="*",
        default=["diet_bert_tiny_en"],
        metavar="PRESET",
        help="folder of a preset, or NAME=FOLDER. A folder called preset gets its parent's name; "
        "default: diet_bert_tiny_en, a small model that comes with the library",
    )
    folder = Path("runs", "inspect_positions")
    add("--output-dir", type=Path, default=folder, help="folder for pictures and figures.json")
    add("--text", nargs="+", metavar="FILE", help=common.TEXT_HELP)
    add(
        "--length",
        type=positive_int,
        help="positions on the maps and tokens in the sequences of figure 2. All models get the "
        "same length, because ranks depend on it; default: all positions of the shortest model",
    )
    add("--batch-size", type=positive_int, default=8, help="sequences in the batch of figure 2")
    add("--layer", type=int, default=0, help="layer of figures 2, 4, 6 and 7")
    add("--heads", type=int, nargs="+", help="heads of figures 4 and 6; default: the first four")
    add("--seed", type=int, default=0, help="seed that selects the sequences")
    arguments = parser.parse_args(argv)
    try:
        arguments.presets = labelled(arguments.presets)
    except ValueError as error:
        parser.error(str(error))
    return arguments


def labelled(presets):
    """Return a dictionary of labels and preset folders."""
    folders = {}
    for text in presets:
        label, separator, path = text.partition("=")
        is_name = (path or text) in models.DietBertBackbone.presets
        # The name of a folder can contain "=".
        if Path(text).exists() or not (separator or is_name):
            path = Path(text).resolve()
            label = path.parent.name if path.name == "preset" else path.name
        if is_name:
            path = path or text
        elif not Path(path).is_dir():
            raise ValueError(f"{path} is not a preset folder")
        if not label or label in folders:
            raise ValueError(
                f"each preset needs its own name. Received: {label!r} for {path}. Use NAME=FOLDER"
            )
        folders[label] = path
    return folders


if __name__ == "__main__":
    main()
