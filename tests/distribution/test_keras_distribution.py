"""JAX: data and model parallel training by `keras.distribution`, on eight simulated devices."""

import json
import os

import keras
import numpy as np
import pytest

from tests.distribution.conftest import check_resumed, finish, start_worker
from tests.helpers import assert_close

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "jax", reason="keras.distribution places tensors on JAX"
)
DEVICES = "--xla_force_host_platform_device_count=8"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distribution")
    flags = f"{os.environ['XLA_FLAGS']} {DEVICES}"
    # No other process has programs for eight devices.
    options = {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    finish(start_worker("distribution.jax_worker", folder, **options))
    return folder


@pytest.fixture(scope="module")
def results(folder):
    return json.loads((folder / "results.json").read_text())


@pytest.mark.parametrize("name", ["losses", "predictions", "embedder"])
def test_devices_train_and_predict_as_one_device(results, name):
    """Although the parts of a batch have different numbers of masked tokens.

    Pairs on other devices are negatives of an embedder.
    """
    assert len(np.unique(results["one"]["losses"])) == 3
    assert_close(results["model"][name], results["one"][name], 1e-4)


@pytest.mark.parametrize("name, number", [("masked_lm", 6), ("translation", 16)])
def test_kernels_are_split_over_the_mesh(results, name, number):
    """`tests/models/test_layout_map.py` says along which axes."""
    of_model = results.get(name, results)
    one, several = of_model["one"], of_model["model"]
    assert (one["devices"], several["devices"]) == (1, 8)
    ratios = {
        path: np.prod(shape) / np.prod(several["weights"][path])
        for path, shape in one["weights"].items()
        if "coder/" in path and path.endswith("kernel")
    }
    assert ratios == dict.fromkeys(ratios, 8)
    # Four of each attention layer and two of each feed-forward network.
    assert len(ratios) == number


def test_translators_train_and_translate_as_on_one_device(results):
    one, model = (results["translation"][kind] for kind in ("one", "model"))
    assert len(np.unique(one["losses"])) == 3
    assert_close(model["losses"], one["losses"], 1e-4)
    assert model["tokens"] == one["tokens"]
    assert model["tokens of three"] == one["tokens of three"] == one["tokens"][:3]
    assert len({tuple(tokens) for tokens in one["tokens"]}) > 1


@pytest.mark.parametrize(("kind", "parts"), [("data", 8), ("model", 2)])
def test_batches_of_any_size(results, kind, parts):
    """Batches are divided where the devices divide their rows, and computed whole elsewhere."""
    one, found = (results["classifier"][name] for name in ("one", kind))
    assert len(found["results"]) == (5 if kind == "data" else 13)
    expected = {**one["results"], "lora": one["results"]["predict"][:8]}
    for name, result in found["results"].items():
        keras.tree.map_structure(
            lambda a, b: assert_close(a, b, 1e-4), result, expected[name.removesuffix(" loaded")]
        )
    assert one["rows"] == [[rows, rows] for rows in (3, 6, 8)]
    assert found["rows"] == [[n, n if n % parts else n // parts] for n, _ in one["rows"]]
    # Kernels of int8 are split as others. One layer has six, with the embedding and the pooler.
    assert len(found["split"]) == (8 if kind == "model" else 0)
    assert one["split"] == []


def test_a_crashed_training_continues_bitwise(folder):
    check_resumed(folder)


def test_each_host_of_a_pod_has_its_own_rows(results):
    assert results["first axes"] == [None, "batch"]
