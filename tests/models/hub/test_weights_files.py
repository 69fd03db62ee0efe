"""Files with weights that a model does not build, or with NaN, are refused before they are read."""

import json
import re

import h5py
import keras_hub
import ml_dtypes
import numpy as np
import pytest

from keras_diet.models import DietBertBackbone, DietBertTextClassifier
from keras_diet.models.hub.weights_files import check_weights_file
from tests.helpers import to_numpy
from tests.models.tasks import random_data, tiny_task
from tests.models.tiny import randomize_weights, tiny_backbone

EMBEDDINGS = "layers/reversible_embedding/vars/0"


def edit_config(folder, **changes):
    """Change arguments of the backbone in all configurations of a preset."""
    for name in ("config.json", "task.json"):
        if (folder / name).exists():
            config = json.loads((folder / name).read_text())
            backbone = config if name == "config.json" else config["config"]["backbone"]
            backbone["config"].update(changes)
            (folder / name).write_text(json.dumps(config))


def edit_weights(path, name, value, index=-1):
    """Write one number of a weight in a file."""
    with h5py.File(path, "r+") as file:
        weights = file[name]
        is_bfloat16 = weights.attrs.get("dtype") == "bfloat16"
        array = weights[()].view(ml_dtypes.bfloat16) if is_bfloat16 else weights[()]
        array.reshape(-1)[index] = value
        weights[...] = array.view("V2") if is_bfloat16 else array


def values_of(model):
    return [to_numpy(weight).copy() for weight in model.weights]


def check_refused(load, *words):
    with pytest.raises(ValueError, match=re.escape(words[0])) as error:
        load()
    for word in words[1:]:
        assert word in str(error.value)


@pytest.mark.parametrize("max_shard_size", [10, 1e-5])
@pytest.mark.parametrize("part", [DietBertBackbone, DietBertTextClassifier])
def test_weights_that_are_not_built_are_named(tmp_path, part, max_shard_size):
    model = tiny_task("classifier", num_layers=2)
    model.save_to_preset(tmp_path, max_shard_size=max_shard_size)
    edit_config(tmp_path, num_layers=1)
    name = "model.weights.h5" if max_shard_size == 10 else "model.weights.json"
    check_refused(
        lambda: part.from_preset(tmp_path),
        f"{tmp_path / name}` holds weights that the configuration does not build",
        # The 16 weights of a block, and its segment bias.
        "Received: 17 such weights: layers/diet_encoder/segment_biases/segment_bias_1/vars/0 "
        "(shape (3, 2, 2)",
        "layers/diet_encoder/transformer_layers/biased_transformer_encoder_1/"
        "feedforward_intermediate_dense/vars/0 (shape (15, 23)",
        ", .... Load it into a model with the arguments of the model that was saved. In a preset, "
        "these are in config.json. To leave the weights out, pass `skip_mismatch=True`",
    )
    assert part.from_preset(tmp_path, load_weights=False).count_params() > 0


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"segment_encoding": "none"}, "segment_bias"),
        ({"position_encoding": "none", "rank": None}, "absolute_position_bias"),
    ],
)
def test_other_weights_are_named(tmp_path, changes, expected):
    tiny_backbone().save_weights(tmp_path / "b.weights.h5")
    other = tiny_backbone(**changes)
    before = values_of(other)
    check_refused(lambda: other.load_weights(tmp_path / "b.weights.h5"), expected)
    for one, value in zip(values_of(other), before, strict=True):
        np.testing.assert_array_equal(one, value)


@pytest.mark.any_backend
def test_weights_that_are_not_built_can_be_left_out(tmp_path):
    model = randomize_weights(tiny_backbone(num_layers=2))
    model.save_weights(tmp_path / "b.weights.h5")
    other = tiny_backbone(num_layers=1)
    other.load_weights(tmp_path / "b.weights.h5", skip_mismatch=True)
    np.testing.assert_array_equal(to_numpy(other.weights[0]), to_numpy(model.weights[0]))


@pytest.mark.any_backend
def test_weights_that_a_layer_does_not_read_are_named(tmp_path):
    backbone = tiny_backbone()
    backbone.save_weights(tmp_path / "b.weights.h5")
    with h5py.File(tmp_path / "b.weights.h5", "r+") as file:
        file["layers/dense/vars/2"] = np.ones(7)
    check_refused(
        lambda: backbone.load_weights(tmp_path / "b.weights.h5"),
        "1 such weights: layers/dense/vars/2 (shape (7,), layer 'pooled_dense'). Load",
    )


@pytest.mark.any_backend
def test_weights_of_another_head_are_named(tmp_path):
    task = tiny_task("classifier")
    task.save_to_preset(tmp_path)
    with h5py.File(tmp_path / "task.weights.h5", "r+") as file:
        file["layers/dense_1/vars/0"] = np.ones((7, 5))
    words = (str(tmp_path / "task.weights.h5"), "layers/dense_1/vars/0 (shape (7, 5))")
    check_refused(lambda: DietBertTextClassifier.from_preset(tmp_path), *words)
    check_refused(lambda: keras_hub.models.TextClassifier.from_preset(str(tmp_path)), *words)
    check_refused(lambda: task.load_task_weights(tmp_path / "task.weights.h5"), *words)


@pytest.mark.any_backend
@pytest.mark.usefixtures("quick_quantization")
def test_quantized_weights_are_named_in_a_float_model(tmp_path):
    backbone = tiny_backbone()
    backbone.quantize("int8")
    backbone.save_weights(tmp_path / "b.weights.h5")
    tiny = tiny_backbone()
    check_refused(lambda: tiny.load_weights(tmp_path / "b.weights.h5"), "14 such weights")
    backbone.load_weights(tmp_path / "b.weights.h5")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_must_be_finite(tmp_path, dtype, value):
    backbone = tiny_backbone(dtype=dtype)
    path = tmp_path / "b.weights.h5"
    backbone.save_weights(path)
    before = values_of(backbone)
    edit_weights(path, EMBEDDINGS, value)
    check_refused(
        lambda: backbone.load_weights(path),
        f"The weights in `{path}` must be finite. Received: NaN or infinite numbers in "
        f"{EMBEDDINGS} (shape (31, 15), layer 'token_embedding'). Use a file from before",
    )
    for one, other in zip(values_of(backbone), before, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.any_backend
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_numbers_are_finite(tmp_path, dtype, sign):
    backbone = tiny_backbone(dtype=dtype)
    path = tmp_path / "b.weights.h5"
    backbone.save_weights(path)
    largest = sign * float(ml_dtypes.finfo(dtype).max)
    for index in (-1, -2):
        edit_weights(path, EMBEDDINGS, largest, index)
    backbone.load_weights(path)
    assert float(to_numpy(backbone.token_embedding.embeddings)[-1, -2]) == largest


@pytest.mark.any_backend
@pytest.mark.parametrize("index", [0, 2**16 - 1, 2**16, -1])
def test_all_blocks_of_a_weight_are_read(tmp_path, index):
    backbone = tiny_backbone(vocabulary_size=8761)
    path = tmp_path / "b.weights.h5"
    backbone.save_weights(path)
    edit_weights(path, EMBEDDINGS, np.nan, index)
    check_refused(lambda: backbone.load_weights(path), EMBEDDINGS)


@pytest.mark.any_backend
@pytest.mark.parametrize("max_shard_size", [10, 1e-5])
def test_presets_must_be_finite(tmp_path, max_shard_size):
    tiny_task("classifier").save_to_preset(tmp_path, max_shard_size=max_shard_size)
    for path in tmp_path.glob("model*.weights.h5"):
        with h5py.File(path, "r") as file:
            is_right = EMBEDDINGS in file
        if is_right:
            edit_weights(path, EMBEDDINGS, np.nan)
    name = "model.weights.h5" if max_shard_size == 10 else "model.weights.json"
    for cls in (DietBertBackbone, DietBertTextClassifier, keras_hub.models.TextClassifier):
        check_refused(lambda cls=cls: cls.from_preset(str(tmp_path)), name, EMBEDDINGS)


@pytest.mark.any_backend
def test_all_files_of_a_layer_are_read(tmp_path):
    backbone = tiny_backbone()
    files = ["first.weights.h5", "second.weights.h5"]
    for file in files:
        backbone.save_weights(tmp_path / file)
    listing = tmp_path / "b.weights.json"
    listing.write_text(json.dumps({"weight_map": {EMBEDDINGS: files}}))
    check_weights_file(backbone, listing)
    edit_weights(tmp_path / files[1], EMBEDDINGS, np.nan)
    check_refused(lambda: check_weights_file(backbone, listing), f"{listing}`", EMBEDDINGS)


@pytest.mark.any_backend
def test_heads_must_be_finite(tmp_path):
    tiny_task("classifier").save_to_preset(tmp_path)
    edit_weights(tmp_path / "task.weights.h5", "layers/dense/vars/1", np.inf)
    check_refused(
        lambda: DietBertTextClassifier.from_preset(tmp_path),
        f"{tmp_path / 'task.weights.h5'}` must be finite. ",
        "layers/dense/vars/1 (shape (7,), layer 'logits')",
    )
    DietBertTextClassifier.from_preset(tmp_path, num_classes=7)


@pytest.mark.any_backend
@pytest.mark.usefixtures("quick_quantization")
@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_quantized_presets(tmp_path, mode):
    backbone = tiny_backbone()
    backbone.quantize(mode)
    backbone.save_to_preset(tmp_path)
    DietBertBackbone.from_preset(tmp_path)
    layer_norm = "layers/layer_normalization/vars/1"
    edit_weights(tmp_path / "model.weights.h5", layer_norm, np.nan)
    check_refused(lambda: DietBertBackbone.from_preset(tmp_path), layer_norm)


def test_files_of_lora_models(tmp_path):
    backbone = tiny_backbone()
    backbone.enable_lora(2)
    backbone.save_weights(tmp_path / "b.weights.h5")
    tiny_backbone().load_weights(tmp_path / "b.weights.h5")
    backbone.load_weights(tmp_path / "b.weights.h5")
    with h5py.File(tmp_path / "b.weights.h5", "r+") as file:
        # As many as the adapters, which are not saved.
        for index in range(4 * backbone.num_layers):
            file[f"layers/other/vars/{index}"] = np.ones(3)
    check_refused(lambda: backbone.load_weights(tmp_path / "b.weights.h5"), "8 such weights")


@pytest.mark.any_backend
def test_compressed_weights_are_checked(tmp_path):
    backbone = tiny_backbone()
    path = tmp_path / "b.weights.h5"
    backbone.save_weights(path)
    with h5py.File(path, "r+") as file:
        array = file[EMBEDDINGS][()]
        del file[EMBEDDINGS]
        file.create_dataset(EMBEDDINGS, data=array, chunks=(5, 7), compression="gzip")
    backbone.load_weights(path)
    edit_weights(path, EMBEDDINGS, np.nan)
    check_refused(lambda: backbone.load_weights(path), EMBEDDINGS)


def test_files_of_trained_tasks(rng, tmp_path):
    model = tiny_task("classifier", with_preprocessor=False)
    inputs, labels, _ = random_data("classifier", rng)
    model.fit(inputs, labels, verbose=0)
    model.save_weights(tmp_path / "t.weights.h5")
    keras_hub.models.TextClassifier.save_task_weights(model, tmp_path / "task.weights.h5")
    with h5py.File(tmp_path / "task.weights.h5") as file:
        assert len(file["optimizer/vars"]) > 2
    loaded = tiny_task("classifier", with_preprocessor=False, compile=False)
    loaded.load_task_weights(tmp_path / "task.weights.h5")
    np.testing.assert_array_equal(to_numpy(loaded.weights[-1]), to_numpy(model.weights[-1]))
    loaded.load_weights(tmp_path / "t.weights.h5")
    for one, other in zip(values_of(loaded), values_of(model), strict=True):
        np.testing.assert_array_equal(one, other)
    edit_weights(tmp_path / "t.weights.h5", "layers/dense/vars/0", np.nan)
    check_refused(lambda: loaded.load_weights(tmp_path / "t.weights.h5"), "layers/dense/vars/0")


@pytest.mark.any_backend
def test_weights_of_keras_files(tmp_path):
    path = tmp_path / "b.keras"
    backbone = tiny_backbone(num_layers=2)
    backbone.save(path)
    backbone.load_weights(path)
    check_refused(lambda: tiny_backbone(num_layers=1).load_weights(path), "17 such weights")
    backbone.pooled_dense.bias.assign(np.full(15, np.nan))
    backbone.save(path)
    check_refused(lambda: backbone.load_weights(path), "layer 'pooled_dense'")


@pytest.mark.any_backend
def test_missing_files_are_left_to_keras(tmp_path):
    with pytest.raises(FileNotFoundError):
        tiny_backbone().load_weights(tmp_path / "missing.weights.h5")
