"""Everything but `as_tf_dataset` works without TensorFlow."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from keras_diet import pretraining

# With `None` in `sys.modules`, importing a package fails as if it were not installed.
SCRIPT = """
import sys

for name in ("tensorflow", "tensorflow_text"):
    sys.modules[name] = None

from pathlib import Path

import keras
import keras_hub

from keras_diet import pretraining

text = "One fox sees two foxes. Two foxes see one fox!\\n\\nThe end is near. " * 20
Path("corpus.txt").write_text(text)
lines = (line for document in pretraining.read_documents("corpus.txt") for line in document)
vocabulary = pretraining.train_wordpiece_vocabulary(lines, 60, show_progress=False)
tokenizer = keras_hub.models.BertTokenizer(vocabulary, lowercase=True)
token_ids = pretraining.pack_text_files(
    "corpus.txt", tokenizer, 16, "tokens.npy", show_progress=False
)
dataset = pretraining.masked_lm_dataset(token_ids, tokenizer, 4, repeat=True)

backbone = keras_hub.models.BertBackbone(len(vocabulary), 1, 2, 8, 8, max_sequence_length=16)
model = keras_hub.models.BertMaskedLM(backbone, preprocessor=None)
schedule = pretraining.WarmupLinearDecay(0.01, 10)
model.compile(
    keras.optimizers.Adam(schedule),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    weighted_metrics=[],
)
model.fit(dataset, steps_per_epoch=1, verbose=0)
assert int(model.optimizer.iterations) == 1
try:
    pretraining.as_tf_dataset(dataset)
except ImportError as error:
    assert "needs TensorFlow" in str(error)
else:
    raise AssertionError
assert not any(name.split(".")[0] == "tensorflow" for name, m in sys.modules.items() if m)
print("works on", keras.backend.backend())
"""


@pytest.mark.skipif(keras.config.backend() != "jax", reason="one backend is enough")
def test_runs_without_tensorflow(tmp_path):
    environment = {
        **os.environ,
        "KERAS_BACKEND": keras.config.backend(),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip().endswith(f"works on {keras.config.backend()}")


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "path", sorted(Path(pretraining.__file__).parent.glob("*.py")), ids=lambda path: path.stem
)
def test_modules_import_neither_tensorflow_nor_models(path):
    imports = [
        ast.unparse(node)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    for name in ("tensorflow", "keras_diet.models", "keras_diet.layers"):
        assert not any(name in line for line in imports)
