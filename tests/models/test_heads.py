"""The heads of tasks start with BERT's initial weights."""

import numpy as np
import pytest

from tests.helpers import to_numpy
from tests.models.tasks import tiny_task

pytestmark = pytest.mark.any_backend


@pytest.mark.parametrize(
    ("task", "path"),
    [("masked_lm", "mlm_head/intermediate_dense/kernel"), ("classifier", "logits/kernel")],
)
def test_initial_kernels_are_berts(task, path):
    weights = {weight.path: weight for weight in tiny_task(task, with_preprocessor=False).weights}
    kernel = to_numpy(weights[path])
    # A normal distribution of deviation 0.02, cut at two deviations.
    assert np.abs(kernel).max() <= 0.04
    assert kernel.std() == pytest.approx(0.02, rel=0.3)
