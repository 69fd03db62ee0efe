"""Everything but `tf.data` works on JAX and PyTorch without TensorFlow.

`tests/test_imports.py` shows what works without KerasHub, too.

The page on installation says so. TensorFlow is blocked, not uninstalled: raw text goes through
Python and grain. One process does everything, because its imports take longest.
"""

import pytest

from tests.distribution.conftest import finish, start_worker


# On JAX, the workers of `tests/cross_backend` and `tests/distribution` run without TensorFlow.
@pytest.mark.any_backend
def test_models_and_pretraining_run(tmp_path):
    output = finish(start_worker("without_tensorflow.worker", tmp_path, backend="torch"))
    assert output.splitlines()[-1] == "torch"
