"""What each import loads, in fresh processes, and that Keras finds our classes in files."""

import importlib.metadata
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import keras
import numpy as np
import pytest
import tokenizers
from packaging.requirements import Requirement

import keras_diet
from keras_diet import _extras, layers, training
from keras_diet._saved_files import CLASSES
from tests.models.tasks import tiny_task
from tests.models.tiny import AT_INPUT, SIZES, tiny_backbone

BACKEND = keras.config.backend()
ROOT = Path(__file__).parents[1]
# The start of each program. `packages` are those that an import has loaded.
START = """
import json, sys

def packages():
    names = {name.split(".")[0] for name, module in sys.modules.items() if module}
    # Cython registers modules of its own.
    return {name for name in names if name[0] != "_"} - sys.stdlib_module_names
"""


def run(program, folder):
    """Run a program in a fresh process in `folder`, and return the JSON on its last line."""
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", START + textwrap.dedent(program)],
        cwd=folder,
        env={**os.environ, "KERAS_BACKEND": BACKEND, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.any_backend
def test_files_load_and_keras_names_the_package_to_import(tmp_path):
    """Layers and training need no KerasHub."""
    inputs = keras.Input((5, 8))
    outputs = layers.DietEncoder(1, 2, 16, position_encoding="input")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(3)(outputs))
    model.compile(
        keras.optimizers.Adam(training.WarmupLinearDecay(0.1, 10)),
        training.SmoothedCategoricalCrossentropy(0.2),
    )
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "x.npy", x)
    tiny_task("classifier").save(tmp_path / "task.keras")
    results = run(
        """
        import keras
        import numpy as np

        try:
            keras.saving.load_model("task.keras")
        except TypeError as error:
            message = str(error)
        import keras_diet

        model = keras.saving.load_model("model.keras")
        outputs = model.predict(np.load("x.npy"), verbose=0).tolist()
        parts = [type(model.loss).__name__, type(model.optimizer._learning_rate).__name__]
        before = "keras_hub" in sys.modules
        task = keras.saving.load_model("task.keras")
        after = type(task) is keras_diet.models.DietBertTextClassifier
        from keras_diet import analysis, layers, metrics, models, pretraining, samplers, training

        objects = keras.saving.get_custom_objects()
        classes = {name: found.__module__ for name, found in objects.items()
                   if "keras_diet>" in name and isinstance(found, type)}
        found = dict(message=message, before=before, after=after, classes=classes)
        print(json.dumps({**found, "outputs": outputs, "parts": parts}))
        """,
        tmp_path,
    )
    np.testing.assert_allclose(results["outputs"], model.predict(x, verbose=0), atol=1e-6)
    assert results["parts"] == ["SmoothedCategoricalCrossentropy", "WarmupLinearDecay"]
    assert "keras_diet>DietBertTextClassifier" in results["message"]
    assert not results["before"]
    assert results["after"]
    assert {name: module.split(".")[1] for name, module in results["classes"].items()} == {
        f"keras_diet>{name}": room for room, names in CLASSES.items() for name in names
    }


def modules_without(*distributions):
    """The top-level modules of all installed packages but these and what they require."""
    allowed, waiting = set(), list(distributions)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in allowed:
            continue
        allowed.add(name)
        try:
            required = map(Requirement, importlib.metadata.requires(name) or ())
        except importlib.metadata.PackageNotFoundError:
            continue
        waiting += [each.name for each in required if not each.marker or each.marker.evaluate()]
    return sorted(
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if module != "keras_diet"
        and not {owner.lower().replace("_", "-") for owner in owners} & allowed
    )


def test_layers_load_and_need_only_keras_and_a_backend(tmp_path):
    """Other packages are blocked, not uninstalled, because a test has no network."""
    blocked = modules_without("keras", "numpy", BACKEND)
    assert set(_extras.PACKAGES) - {"tqdm", "safetensors"} <= set(blocked)
    (tmp_path / "blocked.json").write_text(json.dumps(blocked))
    results = run(
        """
        # With `None` in `sys.modules`, importing a package fails as if it were not installed.
        sys.modules.update(dict.fromkeys(json.load(open("blocked.json"))))
        import keras_diet

        names, rooms = sorted(packages()), dir(keras_diet)
        import keras
        import numpy as np

        keras_packages = packages()
        from keras_diet import analysis, layers, metrics, training

        loaded = sorted(packages() - keras_packages)
        encoder = layers.DietEncoder(1, 2, 16, max_sequence_length=5)
        model = keras.Sequential([keras.Input((5, 8)), encoder])
        model.compile("sgd", "mse")
        x = np.ones((2, 5, 8), "float32")
        training.ExactResume("training", 1).fit(model, x, x, verbose=0)
        model.save("model.keras")
        models = model, keras.saving.load_model("model.keras")
        same = np.allclose(*(model.predict(x, verbose=0) for model in models), atol=1e-6)
        shape = analysis.position_scores(encoder).shape
        messages = {}
        for room in ("models", "pretraining", "samplers"):
            try:
                getattr(keras_diet, room)
            except ImportError as error:
                messages[room] = str(error)
        results = dict(names=names, rooms=rooms, loaded=loaded, messages=messages)
        print(json.dumps({**results, "same": bool(same), "shape": shape}))
        """,
        tmp_path,
    )
    assert not {"keras", "numpy", BACKEND} & set(results["names"])
    assert set(keras_diet.__all__) <= set(results["rooms"])
    # Keras has loaded its backend.
    assert results["loaded"] == []
    assert results["same"]
    assert results["shape"] == [1, 2, 5, 5]
    assert results["messages"].keys() == {"models", "pretraining", "samplers"}
    for message in results["messages"].values():
        assert "keras_hub" in message
        assert 'pip install ".[jax]"' in message


@pytest.mark.any_backend("jax")
def test_folders_need_transformers_but_no_pytorch(tmp_path):
    tiny_backbone(**AT_INPUT).export_to_hugging_face(tmp_path, "bert")
    vocabulary = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "fox"]
    tokenizer = tokenizers.BertWordPieceTokenizer({token: i for i, token in enumerate(vocabulary)})
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    messages, ids, size, has_torch = run(
        """
        import importlib.util

        find, missing = importlib.util.find_spec, "transformers"
        importlib.util.find_spec = lambda name, *args: name != missing and find(name, *args) or None
        from keras_diet.models import DietBertBackbone, HuggingFaceTokenizer

        messages = []
        for cls in (HuggingFaceTokenizer, DietBertBackbone):
            try:
                cls.from_hugging_face(".")
            except ImportError as error:
                messages.append(str(error))
        missing = "torch"
        ids = HuggingFaceTokenizer.from_hugging_face(".")(["fox"])
        size = DietBertBackbone.from_hugging_face(".").hidden_dim
        print(json.dumps([messages, ids, size, "torch" in packages()]))
        """,
        tmp_path,
    )
    assert ['pip install "transformers' in message for message in messages] == [True, True]
    assert (ids, size, has_torch) == ([[5]], SIZES["hidden_dim"], False)


@pytest.mark.any_backend
def test_an_unknown_room_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'layer'"):
        _ = keras_diet.layer
