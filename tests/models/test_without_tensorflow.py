"""Models work on JAX and PyTorch without TensorFlow, as docs/without_tensorflow.md says."""

import os
import subprocess
import sys

import keras
import pytest

BACKEND = keras.config.backend()
# With `None` in `sys.modules`, importing a package fails as if it were not installed.
SCRIPT = """
import sys

for name in ("tensorflow", "tensorflow_text"):
    sys.modules[name] = None

import keras
import keras_hub
import numpy as np

import keras_diet
from keras_diet import models

SIZES = dict(num_layers=1, num_heads=2, hidden_dim=6, intermediate_dim=10, max_sequence_length=13)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "a", "quick", "fox", "##es", "cat"]
TEXTS = ["the quick fox", "foxes", "A cat", "the cat the fox"]


def task(name, **arguments):
    preprocessor = getattr(models, name + "Preprocessor")(
        models.DietBertTokenizer(WORDS, lowercase=True), sequence_length=13
    )
    backbone = models.DietBertBackbone(len(WORDS), **SIZES)
    return getattr(models, name)(backbone, preprocessor=preprocessor, **arguments)


classifier = task("DietBertTextClassifier", num_classes=3)
tokens = classifier.preprocessor(["the quick foxes"])["token_ids"]
assert keras.ops.convert_to_numpy(tokens)[0, :6].tolist() == [2, 5, 7, 8, 9, 3]
classifier.fit(TEXTS, [0, 2, 1, 1], batch_size=2, verbose=0)
expected = classifier.predict((TEXTS, TEXTS[::-1]), verbose=0)
expected = classifier.predict(TEXTS, verbose=0)
assert expected.shape == (4, 3)

classifier.save_to_preset("preset")
for cls in (models.DietBertTextClassifier, keras_hub.models.TextClassifier):
    loaded = cls.from_preset("preset")
    outputs = loaded(loaded.preprocessor(TEXTS))
    np.testing.assert_allclose(keras.ops.convert_to_numpy(outputs), expected, atol=1e-6)
classifier.save("task.keras")
classifier.backbone.save_weights("backbone.weights.h5")
classifier.backbone.load_weights("backbone.weights.h5")

masked_lm = task("DietBertMaskedLM")
masked_lm.fit(TEXTS, batch_size=2, verbose=0)
assert masked_lm.fill_mask("the [MASK] fox", top_k=2)
masked_lm.save_to_preset("masked_lm")
models.DietBertMaskedLM.from_preset("masked_lm")

classifier.quantize("int8")

try:
    models.DietTransformerTokenizer(b"")
except ValueError as error:
    assert "complete SentencePiece model" in str(error)
else:
    raise AssertionError("an empty file is not a model")
pairs = models.DietTransformerSeq2SeqLMPreprocessor(
    models.DietTransformerTokenizer.train(TEXTS, 24), 13, 17, length_buckets=(5,)
)
inputs, labels, weights = pairs(TEXTS, TEXTS[::-1])
assert inputs["encoder_token_ids"].shape == (4, 13) and labels.shape == weights.shape == (4, 17)
prompts = {"encoder_text": TEXTS[1], "decoder_text": "the cat"}
assert pairs.generate_postprocess(pairs.generate_preprocess(prompts)) == "the cat"

assert not any(name.split(".")[0] == "tensorflow" for name, m in sys.modules.items() if m)
print("works on", keras.backend.backend())
"""


@pytest.mark.skipif(BACKEND == "tensorflow", reason="TensorFlow is the backend")
def test_models_run_without_tensorflow(tmp_path):
    environment = {
        **os.environ,
        "KERAS_BACKEND": BACKEND,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip().endswith(f"works on {BACKEND}")
