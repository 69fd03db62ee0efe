"""The random generators of Python, NumPy and the backend that all code of a process shares."""

import contextlib
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

# Who holds it may read and set the states. A thread that reads data sets them for a moment.
_LOCK = threading.Lock()


def random_states() -> dict[str, Any]:
    """Return the states of the generators, as values for JSON."""
    with _LOCK:
        version, words, second_normal = random.getstate()
        of_numpy: Any = np.random.get_state()
    states = {
        "python": [version, list(words), second_normal],
        "numpy": [of_numpy[0], of_numpy[1].tolist(), *of_numpy[2:]],
    }
    if keras.config.backend() == "torch":
        states["torch"] = [module.get_rng_state().tolist() for module in _modules_of_torch()]
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        states["tensorflow"] = tf.random.get_global_generator().state.numpy().tolist()
    return states


def restore_random_states(states: dict[str, Any]) -> None:
    """Set what `random_states` returned."""
    version, words, second_normal = states["python"]
    with _LOCK:
        random.setstate((version, tuple(words), second_normal))
        np.random.set_state(tuple(states["numpy"]))
    if keras.config.backend() == "torch":
        import torch

        for module, state in zip(_modules_of_torch(), states["torch"], strict=True):
            module.set_rng_state(torch.tensor(state, dtype=torch.uint8))
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        tf.random.get_global_generator().state.assign(states["tensorflow"])


@contextlib.contextmanager
def seeded(*seed: int) -> Iterator[None]:
    """Give the generators a seed, and then their earlier states again.

    So a batch may draw from the generators of Python and NumPy, and its numbers do not depend on
    what was drawn before. In the main thread it may draw from PyTorch's generator too. In another
    thread, PyTorch's generator belongs to the model.
    """
    is_main = threading.current_thread() is threading.main_thread()
    torch = sys.modules.get("torch") if is_main and keras.config.backend() == "torch" else None
    words = np.random.SeedSequence(seed).generate_state(4)
    with _LOCK:
        of_python, of_numpy = random.getstate(), np.random.get_state()
        of_torch = torch.get_rng_state() if torch else None
        random.seed(words.tobytes())
        np.random.seed(words)
        if torch:
            torch.default_generator.manual_seed(int(words[0]))
        try:
            yield
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)
            if torch:
                torch.set_rng_state(of_torch)


def seed_of_script() -> int | None:
    """Return the argument of `keras.utils.set_random_seed`, or `None` if no library tells it."""
    if np.random.get_bit_generator().seed_seq is not None:  # type: ignore[attr-defined]
        # NumPy chose its seed itself.
        return None
    if keras.config.backend() == "torch":
        import torch

        return torch.initial_seed()
    # On JAX too, Keras gives TensorFlow the seed if it is installed.
    tensorflow = sys.modules.get("tensorflow")
    return None if tensorflow is None else int(tensorflow.compat.v1.get_seed(0)[0])


def _modules_of_torch():
    """Return the modules of PyTorch that hold a generator, of the CPU and of an accelerator."""
    import torch

    if not torch.accelerator.is_available():
        return [torch]
    return [torch, torch.get_device_module(torch.accelerator.current_accelerator())]
