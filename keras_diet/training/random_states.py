"""The states of all random generators outside of a model."""

import random
from typing import Any

import keras
import numpy as np


def random_states() -> dict[str, Any]:
    """Return the states of Python, NumPy and the backend as values for JSON."""
    version, numbers, gauss = random.getstate()
    numpy_state = np.random.get_state(legacy=False)
    states: dict[str, Any] = {
        "python": [version, list(numbers), gauss],
        "numpy": {**numpy_state, "state": {**numpy_state["state"]}},
    }
    states["numpy"]["state"]["key"] = numpy_state["state"]["key"].tolist()
    if keras.config.backend() == "torch":
        states["torch"] = {name: state.tolist() for name, (state, _) in _torch_generators().items()}
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        states["tensorflow"] = tf.random.get_global_generator().state.numpy().tolist()
    return states


def restore_random_states(states: dict[str, Any]) -> None:
    """Set what `random_states` returned."""
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    np.random.set_state(states["numpy"])
    if keras.config.backend() == "torch":
        import torch

        for name, (_, set_state) in _torch_generators().items():
            set_state(torch.tensor(states["torch"][name], dtype=torch.uint8))
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        tf.random.get_global_generator().state.assign(states["tensorflow"])


def _torch_generators():
    """Return the state of each generator of PyTorch, and the function that sets it."""
    import torch

    generators = {"cpu": (torch.get_rng_state(), torch.set_rng_state)}
    if torch.cuda.is_available():
        device = torch.cuda.current_device()
        generators["cuda"] = (torch.cuda.get_rng_state(device), torch.cuda.set_rng_state)
    if torch.backends.mps.is_available():
        generators["mps"] = (torch.mps.get_rng_state(), torch.mps.set_rng_state)
    return generators
