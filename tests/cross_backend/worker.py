"""Computes on one backend what the tests compare between backends. Run it as a process:

    KERAS_BACKEND=jax python -m tests.cross_backend.worker FOLDER

It writes to `FOLDER/<backend>/`:

- a model of each task, as a preset in `<task>/` and as `<task>.weights.h5`
- `tasks.npz`: the outputs of these models
- `outputs.npz` and `gradients.npz`: outputs and gradients with each encoding
- `translation.npz`: outputs, paths of weights and generated tokens of DietTransformer
- `loaded.npz`: the outputs of the models that other backends have saved. It waits for them.
"""

import sys
import time
from functools import partial
from pathlib import Path

import keras
import keras_hub
import numpy as np

from keras_diet.layers import cache_positions
from keras_diet.models import (
    DietBertMaskedLM,
    DietBertQuestionAnswerer,
    DietBertTextEmbedder,
    DietBertTextEmbedderPreprocessor,
    DietBertTokenClassifier,
)
from keras_diet.samplers import BeamSearchSampler
from tests.cross_backend.cases import (
    BACKENDS,
    ENCODINGS,
    GRADIENT_ENCODINGS,
    LENGTH,
    PAPER_ENCODINGS,
    TRANSLATION_ENCODINGS,
    case_name,
)
from tests.helpers import gradients, to_numpy
from tests.models.diet_transformer import tiny as translation
from tests.models.multilingual import TEXTS, multilingual_tokenizer
from tests.models.question_answering import tiny_question_answerer
from tests.models.tasks import tiny_task
from tests.models.tiny import (
    SIZES,
    draw_with_numpy,
    random_inputs,
    random_masked_inputs,
    randomize_weights,
    tiny_backbone,
)


def outputs():
    """Outputs of a backbone with each encoding, for inputs with padding, and paths of weights."""
    results = {}
    for encoding in ENCODINGS:
        # The encodings of the paper have ways of sharing, which two layers show.
        num_layers = 2 if encoding in PAPER_ENCODINGS else 1
        backbone = randomize_weights(tiny_backbone(num_layers=num_layers, **encoding))
        name = case_name(encoding)
        results[f"{name}/paths"] = np.array([weight.path for weight in backbone.weights])
        inputs = random_inputs(np.random.default_rng(11), length=LENGTH)
        for output_name, output in backbone(inputs).items():
            results[f"{name}/{output_name}"] = to_numpy(output)
    return results


def all_gradients():
    """Gradients of the default loss of a masked LM with respect to all weights."""
    results = {}
    for encoding in GRADIENT_ENCODINGS:
        # One layer compiles faster. Layer-wise sharing needs two.
        num_layers = 2 if encoding["sharing"] == "layer-wise" else 1
        backbone = tiny_backbone(num_layers=num_layers, **encoding)
        masked_lm = randomize_weights(DietBertMaskedLM(backbone))
        inputs, labels, weights = random_masked_inputs(np.random.default_rng(11))

        def loss(masked_lm=masked_lm, inputs=inputs, labels=labels, weights=weights):
            logits = masked_lm(inputs, training=True)
            return masked_lm.compute_loss(y=labels, y_pred=logits, sample_weight=weights)

        variables = masked_lm.trainable_variables
        for variable, gradient in zip(variables, gradients(loss, variables), strict=True):
            results[f"{case_name(encoding)}/{variable.path}"] = gradient
    return results


def translations():
    """Outputs, paths of weights, and tokens of beam search."""
    results = {}
    for encoding in TRANSLATION_ENCODINGS:
        task = translation.tiny_task(num_layers=1, position_encoding=encoding)
        results[f"{encoding}/paths"] = np.array([weight.path for weight in task.weights])
        inputs = translation.random_inputs(np.random.default_rng(11))
        results[f"{encoding}/logits"] = task.predict_on_batch(inputs)
    # TensorFlow takes longer to trace the loop than to run it.
    is_eager = keras.backend.backend() == "tensorflow"
    task.compile(sampler=BeamSearchSampler(3), jit_compile=False, run_eagerly=is_eager)
    outputs = task.generate(translation.prompts(inputs), stop_token_ids=(3, 6, 20))
    return {**results, **outputs}


BASES = {
    "multilingual": keras_hub.models.TextEmbedder,
    "translator": keras_hub.models.Seq2SeqLM,
    "masked_lm": keras_hub.models.MaskedLM,
    "classifier": keras_hub.models.TextClassifier,
    "embedder": keras_hub.models.TextEmbedder,
    # KerasHub has no class for these tasks.
    "token_classifier": DietBertTokenClassifier,
    "question_answerer": DietBertQuestionAnswerer,
}


LIKE_OTHERS = {"first_position": 2, "embedding_dim": 11, "gated": True, "use_bias": False}
LIKE_OTHERS |= {"normalization": "rms_norm", "attention_windows": [None, 3]}


def task_outputs(model, task):
    """Outputs of a task for inputs that are the same in every call."""
    if task == "multilingual":
        return model.encode_text(TEXTS["de"], verbose=0)
    inputs, _, _ = random_masked_inputs(np.random.default_rng(11))
    inputs |= translation.random_inputs(np.random.default_rng(11))
    outputs = keras.tree.flatten(model({name: inputs[name] for name in model.input}))
    return np.concatenate([to_numpy(output) for output in outputs], axis=-1)


def new_task(task):
    if task == "translator":
        return translation.tiny_task(num_layers=1, position_encoding="diet_abs_input", rank=7)
    if task == "multilingual":
        preprocessor = DietBertTextEmbedderPreprocessor(
            multilingual_tokenizer(), sequence_length=SIZES["max_sequence_length"]
        )
        backbone = tiny_backbone(vocabulary_size=multilingual_tokenizer().vocabulary_size())
        return DietBertTextEmbedder(backbone, preprocessor)
    if task == "embedder":
        # With what trained encoders of other types have.
        return tiny_task(task, position_encoding="t5_input", **LIKE_OTHERS)
    new_model = tiny_question_answerer if task == "question_answerer" else partial(tiny_task, task)
    return new_model(num_layers=2, rank=7, sharing="none")


def save_models(folder, backend):
    """Save a model of each task, and return the models."""
    (folder / backend).mkdir()
    results, models = {}, {}
    for task in BASES:
        # Each backend has other weights, so that a test sees which file was loaded.
        models[task] = model = randomize_weights(new_task(task), seed=BACKENDS.index(backend))
        model.save_to_preset(str(folder / backend / task))
        model.save_weights(folder / backend / f"{task}.weights.h5")
        results[task] = task_outputs(model, task)
    np.savez(folder / backend / "tasks.npz", **results)
    (folder / backend / "saved").touch()
    return models


def wait_for_models(folder):
    deadline = time.monotonic() + 900
    while not all((folder / backend / "saved").exists() for backend in BACKENDS):
        assert time.monotonic() < deadline, "another worker saved no models"
        time.sleep(0.1)


def load_preset(folder, task):
    """Load a task without its preprocessor, or the multilingual task, and cache its positions."""
    if task == "multilingual":
        return cache_positions(BASES[task].from_preset(str(folder / task)))
    return BASES[task].from_preset(str(folder / task), preprocessor=None)


def load_models(folder, backend, models):
    results = {}
    for task, model in models.items():
        for source in set(BACKENDS) - {backend}:
            preset = load_preset(folder / source, task)
            results[f"{task}/{source}/preset"] = task_outputs(preset, task)
            model.load_weights(folder / source / f"{task}.weights.h5")
            results[f"{task}/{source}/weights"] = task_outputs(model, task)
    np.savez(folder / backend / "loaded.npz", **results)


def main(folder, backend):
    models = save_models(folder, backend)
    np.savez(folder / backend / "outputs.npz", **outputs())
    np.savez(folder / backend / "gradients.npz", **all_gradients())
    np.savez(folder / backend / "translation.npz", **translations())
    wait_for_models(folder)
    load_models(folder, backend, models)


if __name__ == "__main__":
    keras.initializers.TruncatedNormal.__call__ = draw_with_numpy
    main(Path(sys.argv[1]), keras.backend.backend())
