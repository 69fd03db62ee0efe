"""The systems that serve an encoder compute the same."""

import numpy as np
import pytest

from keras_diet.models import DietBertTextEmbedder
from tests.helpers import assert_close
from tests.models.tasks import tiny_preprocessor
from tests.models.tiny import TEXTS, randomize_weights, tiny_backbone

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.any_backend


def test_both_graphs_embed_alike(tmp_path, capsys):
    """The graph of transformers has no pooling, so the benchmark pools."""
    from benchmarks import serving

    arguments = {"position_encoding": "input", "segment_encoding": "input", "activation": "gelu"}
    backbone = randomize_weights(tiny_backbone(num_layers=1, **arguments))
    embedder = DietBertTextEmbedder(backbone, tiny_preprocessor("embedder"))
    embedder.export_to_hugging_face(tmp_path / "encoder", "bert")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    serving.make_folders(tmp_path / "encoder", ours, theirs)
    expected = np.asarray(embedder.encode_text(TEXTS, verbose=0))
    for folder in (ours, theirs):
        found = serving.run_system(TEXTS, 2, "onnxruntime", folder / serving.FLOAT)
        assert_close(np.array(found["outputs"]), expected, 1e-5)
        assert min(found["milliseconds"], found["sentences"], found["memory"] - 20) > 0
