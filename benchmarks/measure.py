"""Measurements of the benchmarks: time, memory and the machine."""

import concurrent.futures
import contextlib
import ctypes
import datetime
import functools
import gc
import importlib.metadata
import multiprocessing
import os
import platform
import random
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "keras-diet",
    "keras",
    "keras-hub",
    "tensorflow",
    "jax",
    "torch",
    "transformers",
    "numpy",
)
# Information of Linux about this process.
PROCESS = Path("/proc/self")
# These variables change the number of cores that a backend uses, or the code that it compiles.
VARIABLES = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "XLA_FLAGS")


def seconds(function: Callable[[], Any]) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    function()
    wait_for_device()
    return time.perf_counter() - start


def time_in_turn(
    functions: Mapping[Hashable, Callable[[], Any]], rounds: int
) -> dict[Hashable, list[float]]:
    """Return the seconds of each function in each round, in a new random order in each round.

    Other work on the machine then affects all functions alike. Over many rounds, each function
    also runs after each other one.
    """
    rng = random.Random(0)
    times = {name: [] for name in functions}
    for _ in range(rounds):
        for name in rng.sample(list(functions), len(functions)):
            times[name].append(seconds(functions[name]))
    return times


def median_and_quartiles(values: Iterable[float]) -> tuple[float, list[float]]:
    first, median, third = np.quantile(values, [0.25, 0.5, 0.75])
    return float(median), [float(first), float(third)]


def ratio(times: Iterable[float], reference_times: Iterable[float]) -> tuple[float, list[float]]:
    """Return the median of the ratios in each round, and their quartiles."""
    return median_and_quartiles(np.divide(times, reference_times))


def compare(steps: Mapping[Hashable, Callable[[], Any]], rounds: int) -> dict[Any, dict[str, Any]]:
    """Return the milliseconds of each step, and their ratios to the first step."""
    compiling = {name: seconds(function) for name, function in steps.items()}
    # These calls allocate memory, and PyTorch records graphs.
    time_in_turn(steps, 1)
    times = time_in_turn(steps, rounds)
    reference_times = next(iter(times.values()))
    rows = {}
    for name, of_step in times.items():
        of_ratio, quartiles = ratio(of_step, reference_times)
        rows[name] = {
            "milliseconds": 1000 * median_and_quartiles(of_step)[0],
            "ratio": of_ratio,
            "ratio_quartiles": quartiles,
            "compile_seconds": compiling[name],
            "seconds": of_step,
        }
    return rows


@functools.lru_cache(1)
def make_reference(make_step: Callable[..., Callable[[], Any]], *sizes: Any) -> Callable[[], Any]:
    """Return the step that the rows of a table alternate with. It is made once for all of them."""
    return make_step(*sizes)


def compare_with(
    reference: Callable[[], Any], step: Callable[[], Any], rounds: int
) -> dict[str, Any]:
    """Return `compare` of a step, which alternates with a reference, and the reference's times."""
    rows = compare({each: each for each in (reference, step)}, rounds)
    return rows[step] | {"reference_seconds": rows[reference]["seconds"]}


def peak_memory() -> float:
    """Return the peak memory in MiB, of the accelerator or else of this process."""
    if device() != "cpu":
        return peak_memory_of_accelerator() / 2**20
    if (PROCESS / "status").exists():
        # On Linux, `ru_maxrss` of a new process starts with the peak of its parent.
        return memory_in_status("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def memory_in_status(name: str) -> float:
    """Return the MiB that Linux tells about this process under a name."""
    lines = (PROCESS / "status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(name)]
    return int(line.split()[1]) / 2**10


def peak_memory_of_accelerator() -> int:
    if keras.config.backend() == "jax":
        import jax

        return jax.devices()[0].memory_stats()["peak_bytes_in_use"]
    if keras.config.backend() == "torch":
        import torch

        return torch.cuda.max_memory_allocated()
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"]


def reset_peak_memory() -> None:
    """Reset the peak to the memory in use. JAX cannot reset the peak of an accelerator."""
    if device() != "cpu":
        if keras.config.backend() == "torch":
            import torch

            torch.cuda.reset_peak_memory_stats()
        elif keras.config.backend() == "tensorflow":
            import tensorflow as tf

            tf.config.experimental.reset_memory_stats("GPU:0")
        return
    references = PROCESS / "clear_refs"
    if references.exists():
        references.write_text("5")


def return_free_memory() -> None:
    """Return freed memory to the system. Otherwise a step could reuse it without adding memory."""
    with contextlib.suppress(OSError, AttributeError):
        # Only the C library of Linux has this function.
        ctypes.CDLL(None).malloc_trim(0)


def memory_of(step: Callable[[], Any]) -> float:
    """Return the MiB that calls of a step add to the memory in use.

    The first call compiles. The temporary memory of this call does not count, but the memory that
    it keeps does.
    """
    gc.collect()
    return_free_memory()
    reset_peak_memory()
    before = peak_memory()
    step()
    return_free_memory()
    reset_peak_memory()
    step()
    return peak_memory() - before


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of a module returns, called in a new process."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, spawn) as process:
        return process.submit(function, *arguments).result()


def memory_after(
    make_small: Callable[[], Callable[[], Any]], make_step: Callable[[], Callable[[], Any]]
) -> float:
    """Return the MiB that a step adds. A small step loads the libraries and compilers before."""
    make_small()()
    return memory_of(make_step())


def time_and_memory(
    makers: Mapping[str, Callable[..., Callable[[], Any]]],
    small: Sequence[Any],
    sizes: Sequence[Any],
    rounds: int,
) -> dict[str, dict[str, Any]]:
    """Return `compare` of steps, and the MiB that each step adds to a new process.

    Args:
        makers: For each row, a function of sizes that makes a step.
        small: Sizes of a small step.
        sizes: Sizes of the step.
        rounds: Number of timed steps of each row.
    """
    keras.backend.clear_session()
    rows = compare({row: make(*sizes) for row, make in makers.items()}, rounds)
    keras.backend.clear_session()
    for row, make in makers.items():
        of_sizes = (functools.partial(make, *each) for each in (small, sizes))
        rows[row]["mib"] = in_own_process(memory_after, *of_sizes)
    return rows


@functools.cache
def device() -> str:
    """Return the name of the backend's accelerator, or "cpu"."""
    if keras.config.backend() == "jax":
        import jax

        return jax.devices()[0].device_kind
    if keras.config.backend() == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    return tf.config.experimental.get_device_details(gpus[0])["device_name"] if gpus else "cpu"


def wait_for_device() -> None:
    """Wait until the accelerator is idle.

    Reading the loss of a training step does not wait for the optimizer. JAX does not need this,
    because a step is one program.
    """
    if device() == "cpu":
        return
    if keras.config.backend() == "torch":
        import torch

        torch.cuda.synchronize()
    elif keras.config.backend() == "tensorflow":
        import tensorflow as tf

        tf.test.experimental.sync_devices()


def machine(computes_on: str | None = None) -> dict[str, Any]:
    """Return a description of the machine and the software.

    Args:
        computes_on: Name of the device. Defaults to the device of the backend.
    """
    return {
        "date": datetime.date.today().isoformat(),
        "processor": processor(),
        "cores": usable_cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "device": computes_on or device(),
        "backend": keras.config.backend(),
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "commit": commit(),
        "versions": {"python": platform.python_version(), **versions()},
    }


def processor() -> str:
    path = Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*: (.*)", path.read_text()) if path.exists() else []
    return models[0] if models else platform.machine()


def usable_cores() -> int:
    """Return the number of cores that this process may use. The machine may have more."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def commit(folder: Path = ROOT) -> str:
    """Return the commit of a checkout, marked if files differ from it, or "" without git."""
    if not shutil.which("git"):
        return ""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder).stdout.strip()


def versions() -> dict[str, str]:
    installed = {}
    for package in PACKAGES:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed
