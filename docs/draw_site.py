"""Draw pictures of the site: `python docs/draw_site.py`.

`diet.svg` shows what DIET adds to the scores of a head, as Figure 3 of the paper does, and
`paper_results.svg` the paper's results, as Figure 1. `healing.svg` and `lesson.svg` have results of
examples/paper, and the others have those of docs/benchmarks.
"""

import csv
import json
from pathlib import Path

import numpy as np
from matplotlib import rcParams
from matplotlib.figure import Figure

DOCS = Path(__file__).parent
PICTURES = DOCS / "pictures"
RESULTS = DOCS.parent / "examples" / "paper" / "results"
TOKENS = ["[CLS]", "the", "fox", "[SEP]", "a", "hen", "[SEP]"]
SEGMENTS = np.array([0, 0, 0, 0, 1, 1, 1])
MARKERS = {"diet_abs": ("o", "#1f5fa8"), "diet_rel": ("s", "#c4561b")}
BACKENDS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}

# Tables 2 (MNLI, matched), 3 (XNLI) and 4 (BLEU of CS-EN) of the paper.
PAPER = {
    "MNLI": {"input": 85.8, "Shaw": 86.3, "T5": 86.4, "TUPE": 86.1, "REL": 86.3, "ABS": 86.4},
    "XNLI": {"input": 67.0, "Shaw": 67.9, "T5": 68.5, "TUPE": 67.8, "REL": 68.4, "ABS": 68.5},
    "CS-EN": {"input": 22.93, "Shaw": 23.89, "REL": 23.93},
}

# Rows of `benchmarks.gpu`: how they are drawn.
GPU_ROWS = {
    "no_bias": ("no bias", {"color": "gray"}),
    "diet_abs": ('DIET-ABS, "auto"', {"color": "#1f5fa8", "marker": "o"}),
    "diet_abs_features": ('DIET-ABS, "features"', {"color": "#1f5fa8", "linestyle": "--"}),
    "diet_rel": ("DIET-REL", {"color": "#c4561b", "marker": "s"}),
    "t5": ("T5", {"color": "#2f7d32", "marker": "^"}),
    "hugging_face_t5": ("T5 in transformers", {"color": "black", "linestyle": ":"}),
}

# The same picture is the same file.
rcParams["svg.hashsalt"] = "keras_diet"


def save(figure, name):
    """Write a picture."""
    figure.savefig(PICTURES / f"{name}.svg", metadata={"Date": None})


def save_time_and_memory(figure, axes, name, time):
    """Write a picture with the time in its first row, and the memory in its second one."""
    axes[0, 0].set_ylabel(time)
    axes[1, 0].set_ylabel("memory, MiB")
    axes[0, 0].legend(fontsize=8)
    save(figure, name)


def cells_of(name, run):
    """Return the results of a run in a file of docs/benchmarks."""
    runs = json.loads((DOCS / "benchmarks" / f"{name}.json").read_text(encoding="utf-8"))
    return runs[run]["cells"]


def matrix(axis, values, title, labels=None, color="Blues"):
    """Draw a matrix of scores. Labels are written into its cells."""
    spread = 1.4 * np.abs(values).max()
    axis.imshow(values, cmap=color, vmin=-0.4 * spread, vmax=spread)
    for (i, j), value in np.ndenumerate(np.full(values.shape, "") if labels is None else labels):
        axis.text(j, i, value, ha="center", va="center", fontsize=7.5)
    axis.set_title(title, fontsize=11)
    axis.set_xticks([])
    axis.set_yticks([])


def draw_diet() -> None:
    """Draw DIET-ABS above DIET-REL: the terms of the scores of one head."""
    random = np.random.default_rng(7)
    place = np.arange(len(TOKENS))
    distance = place[:, None] - place
    tokens = random.normal(size=(7, 7))
    segments = np.array([[0.9, 0.2], [0.4, 0.7]])[SEGMENTS[:, None], SEGMENTS]
    rows = {
        "DIET-ABS": (
            r"positions $P_Q P_K^\top$",
            random.normal(size=(7, 2)) @ random.normal(size=(2, 7)),
            np.array([[rf"${i},{j}$" for j in place] for i in place]),
        ),
        "DIET-REL": (
            r"distances $R_{i-j}$",
            random.normal(size=13)[distance + 6],
            np.array([[f"{d}" for d in row] for row in distance]),
        ),
    }
    pairs = np.array([[f"{i + 1},{j + 1}" for j in SEGMENTS] for i in SEGMENTS])
    figure = Figure(figsize=(9.6, 5.2), layout="constrained")
    for axes, (name, (title, positions, labels)) in zip(
        figure.subplots(2, 4), rows.items(), strict=True
    ):
        matrix(axes[0], tokens, r"tokens $X W_Q W_K^\top X^\top / \sqrt{d_h}$")
        axes[0].set_ylabel(name, fontsize=14)
        axes[0].set_yticks(place, TOKENS, fontsize=8)
        axes[0].set_xticks(place, TOKENS, fontsize=8, rotation=60)
        matrix(axes[1], positions, title, labels, "Oranges")
        matrix(axes[2], segments, "segments $E_S$", pairs, "Greens")
        total = np.exp(tokens + positions + segments)
        matrix(axes[3], total / total.sum(-1, keepdims=True), "weights of a head", None, "Purples")
        for axis, sign in zip(axes[1:], ("+", "+", "softmax\n$\\rightarrow$"), strict=True):
            style = {"ha": "center", "va": "center", "fontsize": 10}
            axis.text(-0.15, 0.5, sign, transform=axis.transAxes, **style)
    save(figure, "diet")


def draw_costs() -> None:
    """Draw the step times of DIET models as multiples of those of `input`."""
    figure = Figure(figsize=(8.2, 3.2), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, length in zip(axes, ("8 x 128", "2 x 512"), strict=True):
        noise = []
        for place, backend in enumerate(BACKENDS):
            for size, offset in (("small", -0.12), ("base", 0.12)):
                cells = cells_of(f"step_time_{backend}", f"BERT-{size}, inference")
                rows = cells[f"{size}, {length} tokens, inference"]
                noise.append(abs(rows["input_again"]["ratio"] - 1))
                for encoding, (marker, color) in MARKERS.items():
                    ratio = rows[encoding]["ratio"]
                    fill = color if size == "base" else "white"
                    label = f"{encoding}, BERT-{size}" if place == 0 else None
                    style = {"marker": marker, "color": color, "markerfacecolor": fill}
                    axis.plot(place + offset, ratio, linestyle="none", label=label, **style)
        axis.axhline(1.0, color="gray", linewidth=1)
        axis.axhspan(1 - max(noise), 1 + max(noise), color="gray", alpha=0.15, linewidth=0)
        axis.set_xticks(range(3), BACKENDS.values())
        axis.set_title(f"{length.split(' x ')[1]} tokens")
    axes[0].set_ylabel("time / time of BERT's positions")
    axes[0].legend(fontsize=8)
    save(figure, "costs")


def draw_lengths() -> None:
    """Draw the time and the memory of attention over many tokens, for each way to compute it."""
    figure = Figure(figsize=(8.2, 4.8), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey="row")
    hatches = {"full": "", "features": "//", "blockwise": "xx"}
    cells = ["8192 tokens, inference", "4096 tokens, training"]
    for (time, memory), cell in zip(axes.T, cells, strict=True):
        time.set_title(cell)
        for place, name in enumerate(BACKENDS.values()):
            found = cells_of("attention_implementations", name)[f"diet_abs, 1 x {cell}"]
            for i, (implementation, hatch) in enumerate(hatches.items()):
                style = {"color": f"C{i}", "hatch": hatch, "edgecolor": "white", "width": 0.25}
                style["label"] = implementation if place == 0 else None
                row, at = found[implementation], place + 0.27 * (i - 1)
                time.bar(at, row["milliseconds"] / 1000, **style)
                memory.bar(at, row["mib"], **style)
        memory.set_yscale("log")
        memory.set_xticks(range(3), BACKENDS.values())
    save_time_and_memory(figure, axes, "lengths", "seconds")


def draw_gpu() -> None:
    """Draw the time and the memory of one attention layer on a GPU, for each length."""
    figure = Figure(figsize=(8.2, 4.8), layout="constrained")
    axes = figure.subplots(2, 2, sharey="row")
    for (time, memory), backend in zip(axes.T, ("torch", "jax"), strict=True):
        cells = {
            int(name.removeprefix("attention, ")): cell
            for name, cell in cells_of("gpu", BACKENDS[backend]).items()
            if name.startswith("attention")
        }
        lengths = sorted(cells)
        for row, (label, style) in GPU_ROWS.items():
            if all(row in cell for cell in cells.values()):
                found = [cells[length][row] for length in lengths]
                time.plot(lengths, [each["ratio"] for each in found], label=label, **style)
                memory.plot(lengths, [each["mib"] for each in found], **style)
        for axis in (time, memory):
            axis.set(xscale="log", yscale="log")
            axis.set_xticks(lengths, map(str, lengths))
            axis.set_xticks([], minor=True)
        time.set_title(BACKENDS[backend])
        time.set_yticks([1, 3, 10, 30, 100, 300], [1, 3, 10, 30, 100, 300])
        memory.set_xlabel("tokens")
    save_time_and_memory(figure, axes, "gpu", "time / time without a bias")


def draw_searches() -> None:
    """Draw the time of beam search as a multiple of that of other libraries."""
    figure = Figure(figsize=(8.2, 2.9), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, name in zip(axes, ("transformers", "CTranslate2"), strict=True):
        for i, label in enumerate(BACKENDS.values()):
            cells = cells_of("decoding", label)
            ratios = [cell[name.lower()]["ratio"] for cell in cells.values()]
            bars = axis.bar(np.arange(len(cells)) + 0.27 * (i - 1), ratios, 0.25, label=label)
            axis.bar_label(bars, fmt="%.2f", fontsize=7)
            axis.set_xticks(range(len(cells)), cells)
        axis.axhline(1.0, color="gray", linewidth=1)
        axis.set(title=f"time / time of {name}", xlabel="batch size, beams")
        axis.margins(y=0.12)
    axes[1].legend(fontsize=8)
    save(figure, "searches")


def draw_paper_results() -> None:
    """Draw results of the paper: DIET-REL and DIET-ABS (rank 128, shared) beside the others."""
    figure = Figure(figsize=(9.6, 2.8), layout="constrained")
    for axis, (name, results) in zip(figure.subplots(1, 3), PAPER.items(), strict=True):
        colors = [MARKERS.get(f"diet_{row.lower()}", ("", "gray"))[1] for row in results]
        values = list(results.values())
        axis.bar_label(axis.bar(list(results), values, color=colors), fontsize=8)
        margin = 0.4 * (max(values) - min(values))
        axis.set(title=name, ylim=(min(values) - margin, max(values) + margin))
    save(figure, "paper_results")


def draw_healing() -> None:
    """Draw how near converted models are to the original, before and after training."""
    text = (RESULTS / "convert_bert.csv").read_text(encoding="utf-8")
    figure = Figure(figsize=(7.2, 2.2), layout="constrained")
    axis = figure.subplots()
    for row in csv.DictReader(text.splitlines()):
        before, after = (float(row[name] or "nan") for name in ("before", "after_100_steps"))
        axis.plot([before, after], [row["model"]] * 2, color="gray", linewidth=1)
        axis.plot(before, row["model"], "o", color="black", markerfacecolor="white")
        axis.plot(after, row["model"], "o", color="black")
    axis.set_xlabel("mean cosine with the original: before (white) and after 100 steps (black)")
    axis.margins(y=0.2)
    save(figure, "healing")


def draw_lesson() -> None:
    """Draw the validation losses of `make example`, and of BERT's initial values."""
    text = (RESULTS / "lesson.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    axis = figure.subplots()
    for encoding, stddev, label, style in (
        ("diet_abs", "1", "DIET-ABS, scores of 1", {"color": "#1f5fa8", "marker": "o"}),
        ("diet_abs", "", "DIET-ABS, BERT's values", {"color": "#1f5fa8", "linestyle": "--"}),
        ("input", "", "positions at the input", {"color": "gray", "marker": "s"}),
    ):
        run = [r for r in rows if (r["encoding"], r["initial_score_stddev"]) == (encoding, stddev)]
        steps, losses = ([float(row[name]) for row in run] for name in ("step", "val_loss"))
        axis.plot(steps, losses, label=label, **style)
    axis.set(xlabel="steps", ylabel="validation loss")
    axis.legend(fontsize=8)
    save(figure, "lesson")


if __name__ == "__main__":
    draw_diet()
    draw_costs()
    draw_lengths()
    draw_gpu()
    draw_searches()
    draw_paper_results()
    draw_healing()
    draw_lesson()
