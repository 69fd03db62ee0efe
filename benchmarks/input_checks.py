"""Time of `predict` and `fit` on many short texts, with and without the checks of the data.

A classifier reads raw texts of 5 to 24 words. The calls alternate: with the checks, without them,
and with the data path of KerasHub's `Task`, which reads the texts in 16 threads and does not
shuffle. The time of the checks alone is measured, too, because it is smaller than the noise of a
whole call. The results are printed, and written to `--output` as JSON and as a page beside it.

    KERAS_BACKEND=torch python -m benchmarks.input_checks --output runs/input_checks.json
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import keras_hub
import numpy as np

from benchmarks import measure
from benchmarks.results import (
    add_file_options,
    head_of_page,
    markdown_table,
    parse_file_options,
    start,
    write,
)
from keras_diet import models
from keras_diet.models.hub import data_methods, gate
from keras_diet.models.hub.host_data import as_arrays
from keras_diet.pretraining.vocabulary import SPECIAL_TOKENS

MODULE = "benchmarks.input_checks"
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 128, "intermediate_dim": 512}
NUM_WORDS = 1000
PATHS = ("checked", "unchecked", "keras_hub")


def make_texts(num_texts: int) -> tuple[list[str], np.ndarray]:
    """Return random texts and labels."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(NUM_WORDS)])
    texts = [" ".join(rng.choice(words, size=rng.integers(5, 25))) for _ in range(num_texts)]
    return texts, rng.integers(0, 2, num_texts)


def make_classifier() -> models.DietBertTextClassifier:
    vocabulary = [*SPECIAL_TOKENS, *(f"word{i}" for i in range(NUM_WORDS))]
    preprocessor = models.DietBertTextClassifierPreprocessor(
        models.DietBertTokenizer(vocabulary), sequence_length=32
    )
    backbone = models.DietBertBackbone(
        vocabulary_size=len(vocabulary), max_sequence_length=32, **SIZES
    )
    return models.DietBertTextClassifier(backbone, num_classes=2, preprocessor=preprocessor)


def make_calls(method: str, texts: list[str], labels: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Return a function for each path of the data, and one for the checks alone."""
    classifier = make_classifier()
    data = (texts,) if method == "predict" else (texts, labels)

    def checked():
        getattr(classifier, method)(*data, verbose=0)

    def unchecked():
        def no_checks(task, x, y=None, sample_weight=None, needs_labels=True):
            return as_arrays((x, y, sample_weight))

        with mock.patch.object(data_methods, "checked_data", no_checks):
            checked()

    def keras_hub_path():
        getattr(keras_hub.models.TextClassifier, method)(classifier, *data, verbose=0)

    def checks():
        gate.checked_data(classifier, *data, needs_labels=method == "fit")

    return {**dict(zip(PATHS, (checked, unchecked, keras_hub_path), strict=True)), "checks": checks}


def measure_cell(method: str, texts: list[str], labels: np.ndarray, rounds: int) -> dict[str, Any]:
    """Return the seconds of each path, their ratios to `unchecked`, and the share of the checks."""
    calls = make_calls(method, texts, labels)
    for call in calls.values():
        call()
    times = measure.time_in_turn(calls, rounds)
    cell = {
        "seconds": times,
        "share_of_checks": float(np.median(times["checks"])) / float(np.median(times["checked"])),
    }
    for path in PATHS:
        ratio, quartiles = measure.ratio(times[path], times["unchecked"])
        cell[path] = {"ratio_to_unchecked": ratio, "quartiles": quartiles}
    return cell


def make_page(results: dict[str, Any]) -> str:
    rows = [
        [
            method,
            f"{np.median(cell['seconds']['checked']):.2f}",
            f"{1000 * np.median(cell['seconds']['checks']):.1f}",
            f"{100 * cell['share_of_checks']:.2f} %",
            *(f"{cell[path]['ratio_to_unchecked']:.3f}" for path in ("checked", "keras_hub")),
        ]
        for method, cell in results["cells"].items()
    ]
    columns = (
        *("method", "seconds", "ms of the checks alone", "their share"),
        *("with / without checks", "KerasHub's path / without checks"),
    )
    lines = head_of_page("Cost of the checks of data", results)
    return "\n".join([*lines, *markdown_table(columns, rows)])


def main(argv: Sequence[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=10_000, help="number of texts")
    parser.add_argument("--rounds", type=int, default=7, help="calls of each path")
    add_file_options(parser)
    options = parse_file_options(parser, argv)
    results = start(MODULE, argv, options, ("texts", "rounds"))
    texts, labels = make_texts(options.texts)
    for method in ("predict", "fit"):
        if method not in results["cells"]:
            results["cells"][method] = measure_cell(method, texts, labels, options.rounds)
        page = make_page(results)
        if options.output:
            write(options.output, results, page)
    print(page)


if __name__ == "__main__":
    main()
