"""Draw what trained models have learned about positions: Figures 2 and 4 to 8 of the DIET paper.

For presets of masked language models, as `examples/pretrain_masked_lm.py` writes them (KerasHub's
BERT will do as well), several of them in one picture: ranks of attention scores and of positional
scores, maps of positions with and without segments, heads that look ahead and back, and how alike
positions at the input are. What a model does not have is left out and said. The numbers behind the
pictures go to `figures.json`.

    python examples/inspect_positions.py runs/input/preset runs/diet_abs/preset --output-dir figures
    python examples/inspect_positions.py BERT=a/preset DIET=b/preset --text wiki.txt --heads 0 3
"""

import argparse
import json
import sys
from pathlib import Path

import keras_hub
import numpy as np

from keras_diet import analysis, pretraining

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
FIGURES = {
    2: "figure_2_rank_of_scores.png",
    4: "figure_4_position_scores.png",
    5: "figure_5_position_similarity.png",
    6: "figure_6_position_and_segment_scores.png",
    7: "figure_7_shifting_patterns.png",
    8: "figure_8_rank_of_position_scores.png",
}


def positive_int(text):
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"must be positive, not {value}")
    return value


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "presets",
        nargs="+",
        metavar="PRESET",
        help="folder of a preset, or NAME=FOLDER; a folder called preset has its parent's name",
    )
    parser.add_argument(
        "--output-dir",
        type=Path,
        default=Path("runs", "inspect_positions"),
        help="where pictures and figures.json go",
    )
    parser.add_argument(
        "--text",
        nargs="+",
        metavar="FILE",
        help="UTF-8 text files that the batch of figure 2 is drawn from. Without them the embedded "
        "Python language reference is used",
    )
    parser.add_argument(
        "--length",
        type=positive_int,
        help="positions on the maps and tokens in the sequences of figure 2, as many for each "
        "model, because ranks depend on it; default: all that the shortest model has",
    )
    parser.add_argument(
        "--batch-size", type=positive_int, default=8, help="sequences in the batch of figure 2"
    )
    parser.add_argument("--layer", type=int, default=0, help="layer of figures 2, 4, 6 and 7")
    parser.add_argument(
        "--heads", type=int, nargs="+", help="heads of figures 4 and 6; default: the first four"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the sequences drawn")
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
        # A folder may have the sign in its name.
        if Path(text).exists() or not separator:
            path = Path(text).resolve()
            label = path.parent.name if path.name == "preset" else path.name
        if not Path(path).is_dir():
            raise ValueError(f"there is no preset folder {path}")
        if not label or label in folders:
            raise ValueError(f"several presets, or none, are called {label!r}: use NAME=FOLDER")
        folders[label] = Path(path)
    return folders


def load_model(path):
    # Scores of half precision are rounded so much that every rank is full.
    return keras_hub.models.MaskedLM.from_preset(str(path), dtype="float32")


def embedded_documents():
    """Yield the topics of Python's language reference, each a list of paragraphs."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        paragraphs = (" ".join(text.split()) for text in topics[name].split("\n\n"))
        yield [paragraph for paragraph in paragraphs if paragraph]


def draw_batch(tokenizer, arguments):
    """Cut the text into full sequences `[CLS] ... [SEP]`, without padding, and draw some."""
    content = arguments.length - 2
    # Enough to choose from, not the whole of a large text.
    wanted = 32 * arguments.batch_size * content
    texts = pretraining.read_documents(arguments.text) if arguments.text else embedded_documents()
    tokens = []
    for document in texts:
        for paragraph in document:
            tokens.extend(tokenizer(paragraph))
        if len(tokens) >= wanted:
            break
    count = len(tokens) // content
    if count < arguments.batch_size:
        sys.exit(
            f"The text has {count} sequences of {arguments.length} tokens, too few for a batch of "
            f"{arguments.batch_size}. Choose other --text, --length or --batch-size."
        )
    rows = np.random.default_rng(arguments.seed).permutation(count)[: arguments.batch_size]
    token_ids = np.array(tokens[: count * content]).reshape(count, content)[rows]
    token_ids = np.pad(token_ids, ((0, 0), (1, 1)))
    token_ids[:, 0], token_ids[:, -1] = tokenizer.cls_token_id, tokenizer.sep_token_id
    return {
        "token_ids": token_ids,
        "segment_ids": np.zeros_like(token_ids),
        "padding_mask": np.ones_like(token_ids),
    }


def check_sizes(models, arguments):
    """Choose the length, and make sure that every model has it and what else is asked for."""
    longest = {label: model.backbone.max_sequence_length for label, model in models.items()}
    arguments.length = arguments.length or min(longest.values())
    for label, model in models.items():
        if not 3 <= arguments.length <= longest[label]:
            sys.exit(f"--length must be from 3 to {longest[label]} for {label}.")
        if not 0 <= arguments.layer < model.backbone.num_layers:
            sys.exit(f"--layer must be from 0 to {model.backbone.num_layers - 1} for {label}.")
        num_heads = model.backbone.num_heads
        if not all(0 <= head < num_heads for head in arguments.heads or ()):
            sys.exit(f"--heads must be from 0 to {num_heads - 1} for {label}.")


def collect(what, compute, labels):
    """Return `compute(label)` for the labels that have it, and say why the others do not."""
    results = {}
    for label in labels:
        try:
            results[label] = compute(label)
        except ValueError as error:
            print(f"{what} without {label}: {error}")
    return results


def save_figure(number, plot, results, title, folder):
    """Draw one figure, or say that there is nothing on it."""
    path = folder / FIGURES[number]
    # That of an earlier run would be taken for one of this.
    path.unlink(missing_ok=True)
    if not results:
        print(f"No {path.name}: no model has what it shows.")
        return
    figure = plot(results)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)


def looking_ahead_and_back(signed_distances, layer):
    """Return, for each model, the head of a layer that looks ahead most and the one that does back.

    The two are the same head in a model that has only one.
    """
    return {
        label: [int(np.argmax(array[layer])), int(np.argmin(array[layer]))]
        for label, array in signed_distances.items()
    }


def save_figures(results, arguments):
    layer, heads, folder = arguments.layer, arguments.heads, arguments.output_dir

    def maps(scores):
        return analysis.plot_scores(scores, layers=[layer], heads=heads)

    def patterns(scores):
        pairs = looking_ahead_and_back(results["signed_attended_distance"], layer)
        return analysis.plot_scores(scores, layers=[layer], heads=pairs)

    def layer_ranks(ranks):
        return analysis.plot_ranks(ranks, layers=[layer])

    position_scores = results["position_scores"]
    with_distance = {label: position_scores[label] for label in results["attended_distance"]}
    save_figure(
        2,
        layer_ranks,
        results["rank_of_scores"],
        f"Rank of the attention scores of {arguments.batch_size} sequences of "
        f"{arguments.length} tokens",
        folder,
    )
    save_figure(4, maps, position_scores, "Positional scores", folder)
    save_figure(
        5,
        analysis.plot_position_similarity,
        results["position_similarity"],
        "How alike positions at the input are",
        folder,
    )
    save_figure(
        6,
        maps,
        results["position_and_segment_scores"],
        "Positional and segment scores, the second half in segment 1",
        folder,
    )
    save_figure(7, patterns, with_distance, "Looking ahead (left) and back (right)", folder)
    save_figure(
        8,
        analysis.plot_ranks,
        results["rank_of_position_scores"],
        f"Rank of the positional scores of {arguments.length} positions",
        folder,
    )


def analyse(models, arguments):
    """Return what the figures show: a dictionary for each, of arrays by the models' labels."""

    def ranks(label):
        batch = draw_batch(models[label].preprocessor.tokenizer, arguments)
        return analysis.numerical_rank(analysis.attention_scores(models[label], batch))

    def positions(label):
        return analysis.position_scores(models[label], arguments.length)

    def similarity(label):
        return analysis.position_similarity(models[label])

    def segments(label):
        return analysis.segment_scores(models[label])

    def positions_and_segments(label):
        length = min(32, arguments.length)
        segment_ids = (np.arange(length) >= length // 2).astype(int)
        return analysis.position_and_segment_scores(models[label], segment_ids)

    def variance(label):
        return analysis.distance_variance(position_scores[label])

    position_scores = collect("Figures 4, 7 and 8", positions, models)
    distance_variance = collect("Figure 7", variance, position_scores)
    segment_scores = collect("Figure 6", segments, models)
    # Distances have a meaning for both or for none.
    distances = {
        signed: {
            label: analysis.attended_distance(position_scores[label], signed=signed)
            for label in distance_variance
        }
        for signed in (False, True)
    }
    return {
        "rank_of_scores": collect("Figure 2", ranks, models),
        "position_scores": position_scores,
        "rank_of_position_scores": {
            label: analysis.numerical_rank(scores) for label, scores in position_scores.items()
        },
        "distance_variance": distance_variance,
        "attended_distance": distances[False],
        "signed_attended_distance": distances[True],
        "position_similarity": collect("Figure 5", similarity, models),
        "segment_scores": segment_scores,
        "position_and_segment_scores": collect("Figure 6", positions_and_segments, segment_scores),
    }


def numbers(results, label):
    """Return the numbers behind the figures of one model, `None` for what it does not have."""

    def nested_list(name, reduce=np.asarray):
        if label not in results[name]:
            return None
        array = reduce(results[name][label])
        # Undefined numbers are no JSON.
        return np.where(np.isnan(array), None, array).tolist()

    similarities = None
    if label in results["position_similarity"]:
        array = results["position_similarity"][label]
        pairs = array[np.triu_indices(len(array), k=1)]
        similarities = {
            "mean": float(pairs.mean()),
            "quantiles": {str(q): float(np.quantile(pairs, q)) for q in QUANTILES},
        }
    return {
        # Of a layer and head, the mean of the batch.
        "rank_of_scores": nested_list("rank_of_scores", lambda ranks: ranks.mean(axis=1)),
        "rank_of_position_scores": nested_list("rank_of_position_scores"),
        "distance_variance": nested_list("distance_variance"),
        "attended_distance": nested_list("attended_distance"),
        "signed_attended_distance": nested_list("signed_attended_distance"),
        "position_similarity": similarities,
        "segment_scores": nested_list("segment_scores"),
    }


def position_encoding(model):
    """Return the name of a model's encoding; KerasHub's BERT has one of its own."""
    encoding = getattr(model.backbone, "position_encoding", "input")
    return encoding if isinstance(encoding, str) else type(encoding).__name__


def print_table(summary, layer):
    """Print means over the heads of one layer, and of the similarities over all positions."""
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


def main(argv=None):
    arguments = parse_arguments(argv)
    models = {label: load_model(path) for label, path in arguments.presets.items()}
    check_sizes(models, arguments)
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    results = analyse(models, arguments)
    save_figures(results, arguments)
    summary = {
        label: {
            "preset": str(arguments.presets[label]),
            "position_encoding": position_encoding(model),
            **numbers(results, label),
        }
        for label, model in models.items()
    }
    options = {name: getattr(arguments, name) for name in ("length", "batch_size", "layer", "seed")}
    text = json.dumps({**options, "text": arguments.text, "models": summary}, indent=1)
    (arguments.output_dir / "figures.json").write_text(text + "\n")
    print_table(summary, arguments.layer)
    print(f"Pictures and figures.json are in {arguments.output_dir}.")


if __name__ == "__main__":
    main()
