"""The tools that benchmarks share."""

import itertools
import os
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from benchmarks import measure


def test_functions_are_called_in_turn():
    calls = []
    functions = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    times = measure.time_in_turn(functions, rounds=20)
    assert {name: len(seconds) for name, seconds in times.items()} == dict.fromkeys("abc", 20)
    rounds = {tuple(calls[i : i + 3]) for i in range(0, 60, 3)}
    assert {"".join(sorted(names)) for names in rounds} == {"abc"}
    # Each comes after each of the others.
    assert {*zip("abcabc", "bcacab", strict=True)} <= {*itertools.pairwise(calls)}


def test_times_are_those_of_the_functions():
    times = measure.time_in_turn({"short": lambda: None, "long": lambda: time.sleep(0.05)}, 2)
    assert max(times["short"]) < 0.05 <= min(times["long"]) < 5


def test_ratio_is_taken_round_by_round():
    # The machine is slower in the second round, and both functions with it.
    median, quartiles = measure.ratio([2.0, 30.0, 4.0], [1.0, 10.0, 1.0])
    assert median == 3.0
    assert quartiles == [2.5, 3.5]


def test_quartiles():
    assert measure.median_and_quartiles([5.0, 1.0, 2.0, 3.0, 4.0]) == (3.0, [2.0, 4.0])
    assert measure.median_and_quartiles([7.0]) == (7.0, [7.0, 7.0])


MEMORY_PROGRAM = """
import numpy as np
from benchmarks import measure

def take(mebibytes):
    return np.ones(mebibytes * 2**20 // 8)

measure.reset_peak_memory()
before = measure.peak_memory()
take(128)
print(measure.peak_memory() - before)
measure.reset_peak_memory()
print(measure.peak_memory() - before)

sizes = iter((512, 128))
kept = []

def step():
    if not kept:
        kept.append(take(64))
    take(next(sizes))

print(measure.memory_of(step))

def take_small(number=1000):
    return [bytearray(b"x") * 100_000 for _ in range(number)]

# What was freed but cannot be given back by itself, for what lies behind it.
freed, last = take_small(), take_small(1)
del freed
print(measure.memory_of(take_small))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="needs Linux")
def test_peak_of_memory_is_that_of_the_step():
    # In a process of its own: this one may free what earlier tests left at any time.
    command = [sys.executable, "-c", MEMORY_PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, cwd=measure.ROOT)
    assert done.returncode == 0, done.stderr
    peak, after_reset, step, small = map(float, done.stdout.split())
    assert 120 < peak < 136
    assert after_reset < 8
    assert 184 < step < 200
    assert 90 < small < 110


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_matrix_product(dtype):
    multiply, flops = measure.make_matmul(64, 32, 48, dtype)
    assert flops == 2 * 64 * 32 * 48
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(64, 32)), rng.normal(size=(32, 48))
    np.testing.assert_allclose(multiply(), (a @ b)[0, 0], rtol=0.05)


def test_machine():
    machine = measure.machine()
    assert machine["backend"] == keras.config.backend()
    assert 0 < machine["cores"] <= os.cpu_count()
    assert machine["versions"]["keras"] == keras.__version__
    assert machine | {"device": "other"} == measure.machine(computes_on="other")
