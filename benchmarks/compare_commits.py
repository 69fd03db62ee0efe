"""Step times of this checkout and of another one, in one run.

Each checkout has its own process. The processes take steps one after the other, in a new order each
round, so that a busy machine slows both. A ratio is the median of the ratios of the rounds: below
1, this checkout is faster.

    git worktree add ../before HEAD~20
    KERAS_BACKEND=jax python -m benchmarks.compare_commits ../before --output runs/compare_jax.json
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SIZES, LENGTHS, TOKENS = ("small", "base"), (128, 512), 1024
ROWS = ("input", "diet_abs", "diet_rel", "shaw", "t5", "tupe_rel")


def work():
    """Time a step whenever a line on standard input asks for it."""
    from benchmarks import bert_models

    steps = {}
    for line in sys.stdin:
        command, row, size, length = json.loads(line)
        if command == "make":
            model = bert_models.make_model(row, size, length)
            inputs = bert_models.make_inputs(TOKENS // length, length)
            step = bert_models.make_step(row, model, "inference", inputs, None)
            steps[row, size, length] = step
        elif command == "forget":
            steps.clear()
        start = time.perf_counter()
        if command != "forget":
            steps[row, size, length]()
        print("seconds", time.perf_counter() - start, flush=True)


class Worker:
    """The process of a checkout."""

    def __init__(self, checkout):
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        command = [sys.executable, __file__, "--work"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, *command):
        """Send a command and return the seconds that it took."""
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("seconds"):
                return float(line.split()[1])
        raise RuntimeError("A worker has stopped. Its error is above.")


def compare(workers, rows, size, length, rounds):
    """Return the seconds of each row for each worker."""
    for row in rows:
        for worker in workers.values():
            worker.ask("make", row, size, length)
            worker.ask("step", row, size, length)
    seconds = {row: {name: [] for name in workers} for row in rows}
    for _ in range(rounds):
        pairs = [(row, name) for row in rows for name in workers]
        for row, name in random.sample(pairs, len(pairs)):
            seconds[row][name].append(workers[name].ask("step", row, size, length))
    for worker in workers.values():
        worker.ask("forget", None, None, None)
    return seconds


def ratio(seconds, others):
    return statistics.median([a / b for a, b in zip(seconds, others, strict=True)])


TABLE = """| model | this, ms | other, ms | this / other | this / its `input` |
|---|---|---|---|---|"""


def as_row(name, result):
    """Return a result as a row of the table."""
    times = f"{result['this_milliseconds']:.1f} | {result['other_milliseconds']:.1f}"
    return f"| {name} | {times} | {result['ratio']:.3f} | {result['ratio_to_input']:.3f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("other", nargs="?", help="folder of the other checkout")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS, help="in tokens")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS[:3], metavar="ROW")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", help="file of results, in JSON")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work()
        return
    if options.other is None or not Path(options.other, "benchmarks").is_dir():
        parser.error(f"`other` must be the folder of a checkout. Received: {options.other}")
    workers = {"this": Worker(ROOT), "other": Worker(Path(options.other).resolve())}
    results = {}
    print(TABLE)
    for size in options.sizes:
        for length in options.lengths:
            rows = [row for row in options.rows if row != "input"]
            seconds = compare(workers, ["input", *rows], size, length, options.rounds)
            for row, by_worker in seconds.items():
                this, other = by_worker["this"], by_worker["other"]
                name = f"{row}, {size}, {TOKENS // length} x {length}"
                results[name] = {
                    "this_milliseconds": 1000 * statistics.median(this),
                    "other_milliseconds": 1000 * statistics.median(other),
                    "ratio": ratio(this, other),
                    "ratio_to_input": ratio(this, seconds["input"]["this"]),
                    "fastest_ratio": min(this) / min(other),
                    "other_ratio_to_input": ratio(other, seconds["input"]["other"]),
                }
                print(as_row(name, results[name]), flush=True)
    if options.output:
        Path(options.output).parent.mkdir(parents=True, exist_ok=True)
        Path(options.output).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
