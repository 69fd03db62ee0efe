"""Kill trainings at random moments, resume them, and compare the results bitwise.

Each run is a training script that is killed by SIGKILL, some times at a random moment and some
times while it writes a checkpoint. It is started again until it is done. The command fails unless
all weights, the optimizer and the history are bitwise those of a training without interruption.

    KERAS_BACKEND=jax python -m examples.paper.kill_and_resume --runs 20 --output result.json
"""

import argparse
import json
import multiprocessing
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import keras
import numpy as np

from examples.paper.resumed_training import TRAININGS, script


def main(argv=None):
    arguments = parse_arguments(argv)
    # A server that has imported everything forks a process for each start of a script.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["examples.paper.resumed_training"])
    chance = random.Random(arguments.seed)
    references, runs = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.runs):
            data = list(TRAININGS)[number % len(TRAININGS)]
            if data not in references:
                references[data] = reference(context, data, Path(folder, data))
            run = kill_and_resume(
                context, data, Path(folder, f"run_{number}"), references[data], chance, arguments
            )
            runs.append(run)
            print(f"{number + 1:3}  {data:8}  {describe(run)}", flush=True)
    different = [run for run in runs if run["different"]]
    results = {"backend": keras.config.backend(), "seed": arguments.seed, "runs": runs}
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    kills = sum(len(run["kills"]) for run in runs)
    print(
        f"{keras.config.backend()}: {len(runs) - len(different)} of {len(runs)} runs, killed "
        f"{kills} times, are bitwise equal to a run without interruption."
    )
    return 1 if different else 0


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20, help="trainings to kill and resume")
    parser.add_argument("--kills", type=int, default=4, help="kills of each training")
    parser.add_argument(
        "--moments",
        nargs="+",
        choices=["time", "step", "write"],
        default=["time", "step", "write"],
        help="kill after a random time, before a step, or while a checkpoint is written",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    parser.add_argument("--output", type=Path, help="file for all runs as JSON")
    return parser.parse_args(argv)


# === Killing and comparing ===


def start(context, data, folder, moment=("never", None)):
    """Run the script once. Return whether it ended by itself, and its seconds of training."""
    folder.mkdir(exist_ok=True)
    started = context.Event()
    process = context.Process(target=script, args=(data, folder, moment, started))
    process.start()
    while not started.wait(0.01) and process.is_alive():
        pass
    begin = time.perf_counter()
    if moment[0] == "time":
        process.join(moment[1])
        process.kill()
    process.join()
    if process.exitcode not in (0, -signal.SIGKILL):
        sys.exit(f"The script failed with status {process.exitcode}.")
    return process.exitcode == 0, time.perf_counter() - begin


def reference(context, data, folder):
    """Train without interruption. Return the values, and the seconds that the steps took."""
    _, seconds = start(context, data, folder)
    return read(folder), seconds


def read(folder):
    with np.load(folder / "result.npz") as file:
        return {name: file[name] for name in file.files}


def kill_and_resume(context, data, folder, expected, chance, arguments):
    """Kill a training some times, resume it until it is done, and compare its results."""
    values, seconds = expected
    kills = []
    for _ in range(arguments.kills):
        moment = draw_moment(chance, chance.choice(arguments.moments), seconds)
        is_done, _ = start(context, data, folder, moment)
        if is_done:
            break
        files = sorted(path.name for path in (folder / "checkpoints").glob("*"))
        kills.append({"moment": moment, "files": files})
    start(context, data, folder)
    found = read(folder)
    names = sorted(set(values) | set(found))
    different = [name for name in names if not is_same(values.get(name), found.get(name))]
    return {"data": data, "kills": kills, "values": len(names), "different": different}


def draw_moment(chance, kind, seconds):
    value = {
        "time": chance.uniform(0, seconds / 2),
        "step": chance.randrange(8),
        "write": (chance.randrange(3), chance.random()),
    }
    return kind, value[kind]


def is_same(one, other):
    """Whether two arrays have the same bytes."""
    if one is None or other is None:
        return False
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def describe(run):
    kills = ", ".join(
        f"{kind} {value if kind == 'step' else np.round(value, 2)}"
        for kind, value in (kill["moment"] for kill in run["kills"])
    )
    verdict = f"DIFFERENT: {run['different']}" if run["different"] else "bitwise equal"
    return f"{verdict} ({run['values']} arrays) after kills at: {kills}"


if __name__ == "__main__":
    sys.exit(main())
