import pytest

from tests.training.resumed import result, train


@pytest.fixture(scope="package")
def uninterrupted(tmp_path_factory):
    """The results of a training on arrays."""
    return result(*train(tmp_path_factory.mktemp("uninterrupted")))
