"""A model saved under one backend is the same model under every other."""

import pytest

from tests.cross_backend.cases import BACKEND_PAIRS, BACKENDS
from tests.helpers import assert_close


@pytest.mark.parametrize("file", ["preset", "weights"])
@pytest.mark.parametrize("target", BACKENDS)
@pytest.mark.parametrize("source", BACKENDS)
def test_models_move_between_backends(logits, loaded_logits, source, target, file):
    assert logits[source].shape == (2, 5, 31)
    assert_close(loaded_logits[target][f"{source}/{file}"], logits[source], 1e-5)


@pytest.mark.parametrize("pair", BACKEND_PAIRS, ids="-".join)
def test_the_saved_models_differ(logits, pair):
    """Each backend saved a model with weights of its own, so nothing else can have been loaded."""
    first, second = (logits[backend] for backend in pair)
    assert abs(first - second).max() > 0.1
