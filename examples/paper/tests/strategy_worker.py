"""Run `pretrain_masked_lm.py` with `tf.distribute` on two logical CPU devices and on one:

KERAS_BACKEND=tensorflow python -m examples.paper.tests.strategy_worker FOLDER
"""

import contextlib
import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from examples.paper import pretrain_masked_lm
from tests.distribution.training import eager_steps


def write_full_sentences(path):
    """50 documents. Each sentence fills a sequence of 16 tokens, of which 2 are masked."""
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    rng = np.random.default_rng(0)
    documents = [
        " ".join(" ".join(rng.choice(words, 13)).capitalize() + "." for _ in range(4))
        for _ in range(50)
    ]
    path.write_text("\n\n".join(documents))


def run_example(strategy, folder):
    """The output of the example, and its losses."""
    options = ["--steps", "4", "--validation-interval", "2", "--validation-batches", "2"]
    options += ["--batch-size", "8", "--vocabulary-size", "90", "--sequence-length", "16"]
    options += ["--num-layers", "1", "--num-heads", "2", "--hidden-dim", "16"]
    options += ["--intermediate-dim", "32", "--position-encoding", "diet_abs", "--dropout", "0"]
    options += ["--text", str(folder / "text.txt"), "--output-dir", str(folder / strategy)]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), eager_steps(strategy == "none"):
        pretrain_masked_lm.main([*options, "--strategy", strategy])
    with open(folder / strategy / "diet_abs" / "history.csv", newline="") as file:
        losses = [[float(row["loss"]), float(row["val_loss"])] for row in csv.DictReader(file)]
    return {"output": output.getvalue(), "losses": losses}


def compare_examples(folder):
    write_full_sentences(folder / "text.txt")
    return {strategy: run_example(strategy, folder) for strategy in ("mirrored", "none")}


def main(folder):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    Path(folder, "example.json").write_text(json.dumps(compare_examples(Path(folder))))


if __name__ == "__main__":
    main(*sys.argv[1:])
