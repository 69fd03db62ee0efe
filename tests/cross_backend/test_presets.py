"""A model that one backend saved gives the same outputs on every backend."""

import pytest

from tests.cross_backend.cases import BACKEND_PAIRS, BACKENDS
from tests.helpers import assert_close

SHAPES = {"masked_lm": (2, 5, 31), "classifier": (2, 7), "embedder": (2, 15)}


@pytest.mark.parametrize("file", ["preset", "weights"])
@pytest.mark.parametrize("target", BACKENDS)
@pytest.mark.parametrize("source", BACKENDS)
@pytest.mark.parametrize("task", SHAPES)
def test_models_move_between_backends(task_outputs, loaded_outputs, task, source, target, file):
    expected = task_outputs[source][task]
    assert expected.shape == SHAPES[task]
    assert_close(loaded_outputs[target][f"{task}/{source}/{file}"], expected, 1e-5)


@pytest.mark.parametrize("pair", BACKEND_PAIRS, ids="-".join)
@pytest.mark.parametrize("task", SHAPES)
def test_the_saved_models_differ(task_outputs, task, pair):
    """Each backend saved other weights, so equal outputs show that the right file was loaded."""
    first, second = (task_outputs[backend][task] for backend in pair)
    assert abs(first - second).max() > 0.1
