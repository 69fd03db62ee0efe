"""Pretraining with and without document masks: the same models, text, seeds and steps.

Each sentence of the text is a document, and their order is random, so a sequence holds several
documents that have nothing to do with each other. Each model is evaluated twice on held-out text:
where the documents of a sequence see each other, and with document masks.

    KERAS_BACKEND=tensorflow python -m examples.paper.document_masks --text train/* \
        --validation-text valid/* --output examples/paper/results/document_masks.json

To resume, give the same command again: finished trainings are kept.
"""

import argparse
import itertools
import json
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from tqdm import tqdm

from benchmarks import measure
from benchmarks.results import head_of_page, markdown_table, mean_and_deviation, write, write_text
from examples.paper.example_runs import as_options, run_example
from keras_diet import models, pretraining

MODULE = "examples.paper.document_masks"
RECIPE = {
    "num-layers": 2,
    "num-heads": 4,
    "hidden-dim": 128,
    "intermediate-dim": 512,
    "vocabulary-size": 4000,
    "sequence-length": 128,
    "batch-size": 32,
    "dropout": 0.0,
    "learning-rate": 0.002,
    "steps": 1500,
    "validation-interval": 500,
    "warmup-proportion": 0.05,
}
NAMES = {False: "without masks", True: "with masks"}


def write_documents(files: Sequence[Path], path: Path) -> None:
    """Write a text file in which each sentence of 8 words or more is a document."""
    if path.exists():
        return
    documents = pretraining.read_documents([str(file) for file in files])
    paragraphs = itertools.chain.from_iterable(documents)
    sentences = itertools.chain.from_iterable(map(pretraining.split_sentences, paragraphs))
    kept = [sentence for sentence in sentences if len(sentence.split()) >= 8]
    random.Random(0).shuffle(kept)
    write_text(path, "\n\n".join(kept) + "\n")


def share_files(folder: Path, kind: str) -> None:
    """Copy the vocabulary of an earlier run, and its sequences if it is of the same kind."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, pattern in (
        ("vocabulary.txt", "*"),
        ("train.npy", f"*_{kind}_*"),
        ("validation.npy", f"*_{kind}_*"),
    ):
        found = sorted(folder.parent.glob(f"{pattern}/{name}"))
        if found and not (folder / name).exists():
            shutil.copy(found[0], folder / name)


def evaluation_data(text: Path, preset: Path) -> Iterator[tuple[str, Any]]:
    """Yield the batches of held-out text of both kinds, with their names."""
    tokenizer = models.DietBertTokenizer.from_preset(str(preset))
    length = RECIPE["sequence-length"]
    for is_masked, name in NAMES.items():
        documents = pretraining.read_documents([str(text)])
        sequences = pretraining.pack_sentences(documents, tokenizer, length, is_masked)
        token_ids = np.stack(list(sequences))
        numbers = pretraining.number_documents(token_ids, tokenizer.sep_token_id)
        print(f"{name}: {np.mean(numbers.max(-1)):.1f} documents in a sequence")
        yield (
            name,
            pretraining.masked_lm_dataset(
                token_ids, tokenizer, 64, seed=0, shuffle=False, document_masks=is_masked
            ),
        )


def train(encoding: str, is_masked: bool, seed: int, options: Any) -> dict[str, float]:
    """Return the losses of a model on both kinds of batches."""
    kind = NAMES[is_masked].replace(" ", "_")
    folder = options.runs / f"{encoding}_{kind}_{seed}"
    share_files(folder, kind)
    recipe = {**RECIPE, "steps": options.steps, "validation-interval": min(options.steps, 500)}
    run_example(
        "pretrain_masked_lm.py",
        *("--text", options.runs / "train.txt"),
        *("--validation-text", options.runs / "valid.txt"),
        *as_options({**recipe, "position-encoding": encoding, "seed": seed}),
        *("--initial-score-stddev", "bert"),
        *(["--document-masks"] if is_masked else []),
        *("--output-dir", folder),
    )
    preset = folder / encoding / "preset"
    masked_lm = models.DietBertMaskedLM.from_preset(str(preset))
    masked_lm.preprocessor = None
    data = evaluation_data(options.runs / "valid.txt", preset)
    return {name: masked_lm.evaluate(batches, verbose=0)[0] for name, batches in data}


def make_page(results: dict[str, Any]) -> str:
    columns = ["encoding", "evaluated", *(f"trained {name}" for name in NAMES.values()), "p"]
    rows = []
    for encoding, cell in results["cells"].items():
        for evaluated in NAMES.values():
            losses = [
                [each[evaluated] for each in cell.get(trained, {}).values()]
                for trained in NAMES.values()
            ]
            number = min(map(len, losses))
            p = stats.ttest_rel(*(each[:number] for each in losses)).pvalue if number > 1 else None
            rows.append(
                [
                    encoding,
                    evaluated,
                    *(mean_and_deviation(each, 3) if each else "" for each in losses),
                    "" if p is None else f"{p:.3f}",
                ]
            )
    head = head_of_page("Pretraining with and without document masks", results)
    head.append("Losses of masked tokens of held-out text, mean and deviation over seeds.\n")
    return "\n".join([*head, *markdown_table(columns, rows)])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--text", nargs="+", type=Path, required=True, help="text files, as in the example")
    add("--validation-text", nargs="+", type=Path, required=True, help="held-out text files")
    add("--encodings", nargs="+", default=["rotary", "diet_abs"])
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add("--steps", type=int, default=RECIPE["steps"], help="steps of a training")
    add("--runs", type=Path, default=Path("runs", "document_masks"), help="folder for the runs")
    add("--output", type=Path, required=True, help="JSON file; a page is written beside it")
    options = parser.parse_args(argv)
    write_documents(options.text, options.runs / "train.txt")
    write_documents(options.validation_text, options.runs / "valid.txt")
    if options.output.exists():
        results = json.loads(options.output.read_text(encoding="utf-8"))
    else:
        machine = measure.machine()
        command = f"KERAS_BACKEND={machine['backend']} python -m {MODULE} --text TEXT"
        command += f" --validation-text VALIDATION --steps {options.steps} --encodings "
        command += " ".join(options.encodings)
        recipe = {**RECIPE, "steps": options.steps}
        results = {"commands": [command], "machine": machine, "settings": recipe, "cells": {}}
    grid = [(e, m, s) for s in options.seeds for e in options.encodings for m in NAMES]
    for encoding, is_masked, seed in tqdm(grid, unit="run", disable=not sys.stderr.isatty()):
        cell = results["cells"].setdefault(encoding, {}).setdefault(NAMES[is_masked], {})
        if str(seed) not in cell:
            cell[str(seed)] = train(encoding, is_masked, seed, options)
            write(options.output, results, make_page(results))
    print(make_page(results))


if __name__ == "__main__":
    main()
