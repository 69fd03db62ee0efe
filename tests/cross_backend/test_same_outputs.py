"""The same weights give the same outputs and gradients on TensorFlow, JAX and PyTorch."""

import itertools

import numpy as np
import pytest

from tests.cross_backend.cases import (
    BACKEND_PAIRS,
    BACKENDS,
    ENCODINGS,
    GRADIENT_ENCODINGS,
    LENGTHS,
    case_name,
)
from tests.helpers import assert_close

CASES = [case_name(encoding) for encoding in ENCODINGS]
GRADIENT_CASES = [case_name(encoding) for encoding in GRADIENT_ENCODINGS]
PAIRS = pytest.mark.parametrize("pair", BACKEND_PAIRS, ids="-".join)


@PAIRS
@pytest.mark.parametrize("case", CASES)
def test_same_outputs(outputs, case, pair):
    first, second = (outputs[backend] for backend in pair)
    assert first[f"{case}/paths"].tolist() == second[f"{case}/paths"].tolist()
    for length in LENGTHS:
        for name, shape in (("sequence_output", (2, length, 15)), ("pooled_output", (2, 15))):
            key = f"{case}/{length}/{name}"
            assert first[key].shape == shape
            assert_close(first[key], second[key], 1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_encoding_has_other_outputs(outputs, backend):
    """Otherwise the comparison of backends could miss an encoding."""
    for first, second in itertools.combinations(CASES, 2):
        arrays = (outputs[backend][f"{case}/13/sequence_output"] for case in (first, second))
        assert not np.allclose(*arrays, atol=1e-3), (first, second)


@PAIRS
@pytest.mark.parametrize("case", GRADIENT_CASES)
def test_same_gradients(gradients, case, pair):
    first, second = (
        {key: value for key, value in gradients[backend].items() if key.startswith(f"{case}/")}
        for backend in pair
    )
    assert list(first) == list(second)
    assert len(first) > 20
    for key in first:
        assert_close(first[key], second[key], 1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", GRADIENT_CASES)
def test_every_weight_has_a_gradient(gradients, case, backend):
    """Except the pooler, which the loss does not use, and key biases, which softmax removes."""
    for key, gradient in gradients[backend].items():
        if key.startswith(f"{case}/"):
            unused = "/pooled_dense/" in key or key.endswith("self_attention/key/bias")
            assert (np.abs(gradient).max() > 1e-4) != unused, key
