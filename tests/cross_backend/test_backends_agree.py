"""TensorFlow, JAX and PyTorch give the same outputs and gradients, and load each other's models.

All cases are in one file, so that pytest-xdist runs the workers once.
"""

import itertools

import pytest

from tests.cross_backend.cases import (
    BACKEND_PAIRS,
    BACKENDS,
    ENCODINGS,
    GRADIENT_ENCODINGS,
    LENGTH,
    TRANSLATION_ENCODINGS,
    case_name,
)
from tests.helpers import assert_close

pytestmark = pytest.mark.any_backend
CASES = [case_name(encoding) for encoding in ENCODINGS]
GRADIENT_CASES = [case_name(encoding) for encoding in GRADIENT_ENCODINGS]
PAIRS = pytest.mark.parametrize("pair", BACKEND_PAIRS, ids="-".join)


@PAIRS
@pytest.mark.parametrize("case", CASES)
def test_same_outputs(results, case, pair):
    first, second = (results["outputs"][backend] for backend in pair)
    assert first[f"{case}/paths"].tolist() == second[f"{case}/paths"].tolist()
    for name, shape in (("sequence_output", (2, LENGTH, 15)), ("pooled_output", (2, 15))):
        key = f"{case}/{name}"
        assert first[key].shape == shape
        assert_close(first[key], second[key], 1e-5)


@PAIRS
@pytest.mark.parametrize("case", GRADIENT_CASES)
def test_same_gradients(results, case, pair):
    first, second = (
        {
            key: value
            for key, value in results["gradients"][backend].items()
            if key.startswith(f"{case}/")
        }
        for backend in pair
    )
    assert list(first) == list(second)
    assert len(first) > 20
    for key in first:
        assert_close(first[key], second[key], 1e-5)


@PAIRS
@pytest.mark.parametrize("encoding", TRANSLATION_ENCODINGS)
def test_same_translators(results, encoding, pair):
    first, second = (results["translation"][backend] for backend in pair)
    assert first[f"{encoding}/paths"].tolist() == second[f"{encoding}/paths"].tolist()
    logits = first[f"{encoding}/logits"]
    assert logits.shape == (2, 7, 31)
    assert_close(logits, second[f"{encoding}/logits"], 1e-5)


@PAIRS
def test_same_translations(results, pair):
    first, second = (results["translation"][backend] for backend in pair)
    for name in ("decoder_token_ids", "decoder_padding_mask"):
        assert first[name].shape == (2, 7)
        assert first[name].tolist() == second[name].tolist()


SHAPES = {
    **{"masked_lm": (2, 5, 31), "classifier": (2, 7), "embedder": (2, 15)},
    **{"translator": (2, 7, 31), "token_classifier": (2, 11, 5), "multilingual": (3, 15)},
    # Logits of starts and ends.
    "question_answerer": (2, 22),
}


@pytest.mark.parametrize("file", ["preset", "weights"])
@pytest.mark.parametrize("source, target", itertools.permutations(BACKENDS, 2))
@pytest.mark.parametrize("task", SHAPES)
def test_models_move_between_backends(results, task, source, target, file):
    expected = results["tasks"][source][task]
    assert expected.shape == SHAPES[task]
    assert_close(results["loaded"][target][f"{task}/{source}/{file}"], expected, 1e-5)
