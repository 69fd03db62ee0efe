"""What upstream does not do yet. A test that passes says that a repair is not needed any more.

`xfail_strict` makes such a test fail. `keras_diet/models/hub/repairs.py` has the repairs.
"""

import keras
import keras_hub
import numpy as np
import pytest

from tests.helpers import assert_close, to_numpy

pytestmark = pytest.mark.any_backend
INPUTS = {
    "token_ids": np.array([[3, 1, 2], [2, 5, 1]]),
    "segment_ids": np.zeros((2, 3), "int32"),
    "padding_mask": np.ones((2, 3), "int32"),
}


@pytest.fixture
def backbone(tmp_path):
    backbone = keras_hub.models.BertBackbone(20, 1, 2, 8, 16, max_sequence_length=8)
    backbone.save_to_preset(tmp_path / "preset")
    return backbone


def outputs(backbone):
    return to_numpy(backbone(INPUTS)["sequence_output"])


@pytest.mark.xfail(raises=ValueError, reason="keras-hub pull request 2367")
def test_a_preset_of_a_task_in_mixed_precision_loads(tmp_path):
    backbone = keras_hub.models.BertBackbone(20, 1, 2, 8, 16, dtype="mixed_bfloat16")
    task = keras_hub.models.BertTextClassifier(backbone, 2, preprocessor=None)
    task.save_to_preset(tmp_path)
    loaded = keras_hub.models.TextClassifier.from_preset(str(tmp_path), preprocessor=None)
    assert loaded.dtype_policy.name == "mixed_bfloat16"


@pytest.mark.filterwarnings("ignore:.*does not have a `quantize` method")
@pytest.mark.xfail(raises=ValueError, reason="keras-hub pull request 2367")
def test_a_preset_of_a_quantized_backbone_loads(backbone, tmp_path):
    backbone.quantize("int8")
    backbone.save_to_preset(tmp_path / "quantized")
    loaded = keras_hub.models.Backbone.from_preset(str(tmp_path / "quantized"))
    assert_close(outputs(loaded), outputs(backbone))


@pytest.mark.xfail(raises=AssertionError, reason="keras-hub issue 2701")
def test_a_file_of_adapters_has_all_trained_weights(backbone, tmp_path):
    backbone.enable_lora(2)
    for weight in backbone.trainable_weights:
        weight.assign(weight + 0.5)
    backbone.save_lora_weights(tmp_path / "task.lora.h5")
    loaded = keras_hub.models.Backbone.from_preset(str(tmp_path / "preset"))
    loaded.enable_lora(2)
    loaded.load_lora_weights(tmp_path / "task.lora.h5")
    assert_close(outputs(loaded), outputs(backbone))


@pytest.mark.xfail(raises=KeyError, reason="keras-hub issue 2701")
def test_a_file_of_adapters_says_which_layers_have_them(backbone, tmp_path):
    backbone.enable_lora(2, ["key"])
    backbone.save_lora_weights(tmp_path / "task.lora.h5")
    loaded = keras_hub.models.Backbone.from_preset(str(tmp_path / "preset"))
    loaded.load_lora_weights(tmp_path / "task.lora.h5")


@pytest.mark.any_backend("tensorflow")
@pytest.mark.xfail(raises=AssertionError, reason="Keras's Adam squares parts of a sum")
def test_adam_gets_the_sum_of_a_row_that_occurs_twice():
    """Keras 3.15 finds 0.8586. `tests/training/test_repeated_rows.py` has our values."""
    table = keras.layers.Embedding(4, 1, embeddings_initializer="ones")
    model = keras.Sequential([keras.Input((3,), dtype="int32"), table])
    model.compile(keras.optimizers.Adam(0.1), lambda y, rows: keras.ops.sum(rows))
    model.train_on_batch(np.array([[1, 1, 2]]), np.zeros((1, 3, 1)))
    assert_close(model.get_weights()[0][:, 0], np.array([1, 0.9, 0.9, 1]))


@pytest.mark.xfail(reason="not reported yet")
def test_pytorch_exports_gathers_for_any_sizes():
    import torch

    class Gather(torch.nn.Module):
        def forward(self, inputs, indices):
            return torch.take_along_dim(inputs, indices, dim=1)

    sizes = dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC)
    tensors = torch.ones(5, 9, 4), torch.zeros(5, 3, 1, dtype=torch.int64)
    torch.export.export(Gather(), tensors, dynamic_shapes=(sizes, sizes), strict=False)


@pytest.mark.xfail(raises=AssertionError, reason="not reported yet")
def test_pytorch_exports_projections_as_products():
    import torch

    class Projection(torch.nn.Module):
        def forward(self, inputs, kernel):
            return torch.einsum("abc,cde->abde", inputs, kernel)

    tensors = torch.ones(2, 3, 5), torch.ones(5, 7, 4)
    program = torch.onnx.export(Projection(), tensors, dynamo=True, verbose=False)
    assert "Einsum" not in [node.op_type for node in program.model.graph]
