"""What one backend computes for the comparison of backends; run as a process of its own.

    KERAS_BACKEND=jax python -m tests.cross_backend.worker save FOLDER
    KERAS_BACKEND=jax python -m tests.cross_backend.worker load FOLDER

`save` writes to `FOLDER/<backend>/`: `outputs.npz` (of each encoding), `gradients.npz`, and a
masked LM as `preset/`, as `model.weights.h5`, and its `logits.npz`. `load` reads the models that
all backends saved, and writes their logits to `FOLDER/<backend>/loaded.npz`.
"""

import sys
from pathlib import Path

import keras
import keras_hub
import numpy as np

from keras_diet.models import DietBertMaskedLM, DietBertMaskedLMPreprocessor, DietBertTokenizer
from tests.cross_backend.cases import BACKENDS, ENCODINGS, GRADIENT_ENCODINGS, LENGTHS, case_name
from tests.helpers import gradients, to_numpy
from tests.models.tiny import (
    VOCABULARY,
    draw_with_numpy,
    random_inputs,
    random_masked_inputs,
    randomize_weights,
    tiny_backbone,
)


def outputs():
    """Outputs of a backbone with each encoding, with padding, and the paths of its weights."""
    results = {}
    for encoding in ENCODINGS:
        backbone = randomize_weights(tiny_backbone(**encoding))
        name = case_name(encoding)
        results[f"{name}/paths"] = np.array([weight.path for weight in backbone.weights])
        for length in LENGTHS:
            inputs = random_inputs(np.random.default_rng(length), length=length)
            for output_name, output in backbone(inputs).items():
                results[f"{name}/{length}/{output_name}"] = to_numpy(output)
    return results


def all_gradients():
    """Gradients of the default loss of a masked LM by all of its weights."""
    results = {}
    for encoding in GRADIENT_ENCODINGS:
        masked_lm = randomize_weights(DietBertMaskedLM(tiny_backbone(**encoding)))
        inputs, labels, weights = random_masked_inputs(np.random.default_rng(11))

        def loss(masked_lm=masked_lm, inputs=inputs, labels=labels, weights=weights):
            logits = masked_lm(inputs, training=True)
            return masked_lm.compute_loss(y=labels, y_pred=logits, sample_weight=weights)

        variables = masked_lm.trainable_variables
        for variable, gradient in zip(variables, gradients(loss, variables), strict=True):
            results[f"{case_name(encoding)}/{variable.path}"] = gradient
    return results


def logits(masked_lm):
    """Logits of a masked LM, for inputs that are always the same."""
    inputs, _, _ = random_masked_inputs(np.random.default_rng(11))
    return to_numpy(masked_lm(inputs))


def new_masked_lm():
    preprocessor = DietBertMaskedLMPreprocessor(DietBertTokenizer(VOCABULARY), sequence_length=13)
    return DietBertMaskedLM(tiny_backbone(rank=7, sharing="none"), preprocessor)


def save(folder, backend):
    (folder / backend).mkdir()
    np.savez(folder / backend / "outputs.npz", **outputs())
    np.savez(folder / backend / "gradients.npz", **all_gradients())
    # Weights that no other backend has: a preset is only loaded if these come with it.
    masked_lm = randomize_weights(new_masked_lm(), seed=BACKENDS.index(backend))
    masked_lm.save_to_preset(str(folder / backend / "preset"))
    masked_lm.save_weights(folder / backend / "model.weights.h5")
    np.savez(folder / backend / "logits.npz", logits=logits(masked_lm))


def load(folder, backend):
    results = {}
    for source in BACKENDS:
        preset = str(folder / source / "preset")
        results[f"{source}/preset"] = logits(keras_hub.models.MaskedLM.from_preset(preset))
        masked_lm = new_masked_lm()
        masked_lm.load_weights(folder / source / "model.weights.h5")
        results[f"{source}/weights"] = logits(masked_lm)
    np.savez(folder / backend / "loaded.npz", **results)


if __name__ == "__main__":
    keras.initializers.TruncatedNormal.__call__ = draw_with_numpy
    phases = {"save": save, "load": load}
    phases[sys.argv[1]](Path(sys.argv[2]), keras.backend.backend())
