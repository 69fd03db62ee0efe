"""Fixtures of the tests of layers."""

import keras
import pytest


@pytest.fixture(autouse=True)
def _quick_compilation():
    """Let JAX compile as quickly as it can: what runs here runs once, on a few numbers."""
    if keras.backend.backend() != "jax":
        yield
        return
    import jax

    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
