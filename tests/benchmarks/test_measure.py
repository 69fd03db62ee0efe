"""The measurements that the benchmarks share."""

import itertools
import os
import subprocess
import types

import keras
import numpy as np
import pytest

from benchmarks import measure

MIB = 2**20


@pytest.mark.any_backend
def test_functions_alternate():
    calls = []
    functions = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    times = measure.time_in_turn(functions, rounds=20)
    assert {name: len(seconds) for name, seconds in times.items()} == dict.fromkeys("abc", 20)
    rounds = {tuple(calls[i : i + 3]) for i in range(0, 60, 3)}
    assert {"".join(sorted(names)) for names in rounds} == {"abc"}
    # Each function runs after each other function.
    assert {*zip("abcabc", "bcacab", strict=True)} <= {*itertools.pairwise(calls)}


@pytest.mark.any_backend
def test_times_belong_to_their_functions(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(measure.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(measure, "wait_for_device", lambda: advance(1.0))

    def advance(seconds):
        clock[0] += seconds

    functions = {"short": lambda: advance(2.0), "long": lambda: advance(5.0)}
    times = measure.time_in_turn(functions, rounds=3)
    # The accelerator finishes its work one second later.
    assert times == {"short": [3.0] * 3, "long": [6.0] * 3}


@pytest.mark.any_backend
def test_ratio_is_taken_round_by_round():
    # The machine, and with it both functions, is slower in the second round.
    median, quartiles = measure.ratio([2.0, 30.0, 4.0], [1.0, 10.0, 1.0])
    assert median == 3.0
    assert quartiles == [2.5, 3.5]


@pytest.mark.any_backend
def test_quartiles():
    assert measure.median_and_quartiles([5.0, 1.0, 2.0, 3.0, 4.0]) == (3.0, [2.0, 4.0])
    assert measure.median_and_quartiles([7.0]) == (7.0, [7.0, 7.0])


class Process:
    """An imaginary process. It replaces the functions that read and return memory, in MiB."""

    def __init__(self, monkeypatch):
        self.used = self.peak = 1000.0
        self.freed = 0.0
        monkeypatch.setattr(measure, "peak_memory", lambda: self.peak)
        for name in ("reset_peak_memory", "return_free_memory"):
            monkeypatch.setattr(measure, name, getattr(self, name))

    def take(self, mib):
        """Reuse freed memory first, as the C library does."""
        self.used += max(mib - self.freed, 0)
        self.freed = max(self.freed - mib, 0)
        self.peak = max(self.peak, self.used)

    def free(self, mib):
        """Free memory. It counts as used until it is returned to the system."""
        self.freed += mib

    def return_free_memory(self):
        self.used -= self.freed
        self.freed = 0.0

    def reset_peak_memory(self):
        self.peak = self.used


def step_of(process, sizes, kept):
    """Return a step that takes the next of `sizes`. Its first call also keeps memory."""
    sizes, kept = iter(sizes), [kept]

    def step():
        if kept:
            process.take(kept.pop())
        size = next(sizes)
        process.take(size)
        process.free(size)

    return step


@pytest.mark.any_backend
@pytest.mark.parametrize("compiling", [7.0, 512.0])
def test_memory_of_a_step_is_what_it_keeps_and_its_peak(monkeypatch, compiling):
    process = Process(monkeypatch)
    # An earlier peak and freed memory do not count.
    process.take(300.0)
    process.free(200.0)
    process.peak = 5000.0
    step = step_of(process, sizes=(compiling, 128.0), kept=64.0)
    assert measure.memory_of(step) == 64.0 + 128.0


@pytest.mark.any_backend
def test_peak_memory_of_a_process_on_linux(monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "device", lambda: "cpu")
    monkeypatch.setattr(measure, "PROCESS", tmp_path)
    (tmp_path / "status").write_text("VmPeak:\t 9216 kB\nVmHWM:\t    2560 kB\nVmRSS:\t 512 kB\n")
    assert measure.peak_memory() == 2.5
    (tmp_path / "clear_refs").touch()
    measure.reset_peak_memory()
    assert (tmp_path / "clear_refs").read_text() == "5"


@pytest.mark.any_backend
def test_peak_memory_of_a_process_elsewhere(monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "device", lambda: "cpu")
    monkeypatch.setattr(measure, "PROCESS", tmp_path / "absent")
    usage = types.SimpleNamespace(ru_maxrss=3 * MIB)
    monkeypatch.setattr(measure.resource, "getrusage", lambda who: usage)
    measure.reset_peak_memory()
    assert measure.peak_memory() == 3.0


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux")
@pytest.mark.any_backend
def test_peak_memory_of_this_process_is_known(monkeypatch):
    monkeypatch.setattr(measure, "device", lambda: "cpu")
    assert measure.peak_memory() > 1


@pytest.mark.any_backend
def test_peak_memory_of_an_accelerator(monkeypatch):
    monkeypatch.setattr(measure, "device", lambda: "H100")
    monkeypatch.setattr(measure, "peak_memory_of_accelerator", lambda: 3 * MIB)
    assert measure.peak_memory() == 3.0


@pytest.mark.any_backend
def test_a_process_returns_its_last_line(monkeypatch):
    def run(command, stdout, cwd, **kwargs):
        assert command[1:] == ["-m", "benchmarks.some", "--length", "8"]
        assert cwd == measure.ROOT
        return subprocess.CompletedProcess(command, 0, stdout="note\n7.5\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert measure.in_own_process("benchmarks.some", "--length", 8) == "7.5"


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
