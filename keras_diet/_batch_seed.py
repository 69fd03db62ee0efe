"""Random numbers of a batch that do not depend on what was drawn before."""

import contextlib
import random
import sys
import threading
from collections.abc import Iterator, Sequence

import keras
import numpy as np

# Who holds it may read and set the random states. Threads read batches.
READING = threading.Lock()


@contextlib.contextmanager
def batch_seed(seed: Sequence[int]) -> Iterator[None]:
    """Give the generators that data may draw from a seed, and then their earlier states again.

    These are Python's, NumPy's and, in the main thread, PyTorch's. In another thread, PyTorch's
    generator belongs to the model. One batch is read at a time.
    """
    with READING, _seeded(seed):
        yield


@contextlib.contextmanager
def _seeded(seed):
    python_state, numpy_state = random.getstate(), np.random.get_state()
    words = np.random.SeedSequence(list(seed)).generate_state(4)
    random.seed(words.tobytes())
    np.random.seed(words)
    is_main = threading.current_thread() is threading.main_thread()
    torch = sys.modules.get("torch") if is_main and keras.config.backend() == "torch" else None
    torch_state = torch.get_rng_state() if torch else None
    if torch:
        torch.default_generator.manual_seed(int(words[0]))
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        if torch:
            torch.set_rng_state(torch_state)
