"""Where TensorFlow is not installed everything but `as_tf_dataset` works."""

import importlib.util
import os
import subprocess
import sys

import pytest

# `None` in `sys.modules` makes an import fail as if the package were missing.
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


def test_runs_without_tensorflow(tmp_path):
    backends = [name for name in ("jax", "torch") if importlib.util.find_spec(name)]
    wanted = os.environ.get("KERAS_BACKEND")
    if not backends:
        pytest.skip("needs JAX or torch")
    backend = wanted if wanted in backends else backends[0]
    environment = {
        **os.environ,
        "KERAS_BACKEND": backend,
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
    assert result.stdout.strip().endswith(f"works on {backend}")


def test_tensorflow_is_never_imported_at_module_level():
    code = (
        "import sys; import keras_diet.pretraining as p; from pathlib import Path; import ast\n"
        "for path in Path(p.__file__).parent.glob('*.py'):\n"
        "    for node in ast.parse(path.read_text()).body:\n"
        "        if isinstance(node, (ast.Import, ast.ImportFrom)):\n"
        "            assert 'tensorflow' not in ast.unparse(node), path\n"
        "            for name in ('models', 'layers'):\n"
        "                assert f'keras_diet.{name}' not in ast.unparse(node), path\n"
    )
    exec(compile(code, "check", "exec"), {})
