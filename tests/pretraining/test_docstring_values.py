"""The comments in the examples of docstrings show the right values."""

import inspect
import re

import keras
import keras_hub
import numpy as np
import pytest

import keras_diet
import keras_diet.pretraining


def example(name):
    docstring = inspect.getdoc(getattr(keras_diet.pretraining, name))
    return re.search(r"```python\n(.*?)```", docstring, re.DOTALL)[1]


def run(name, before=None):
    """Run an example, or its part before a line, and return its variables."""
    code = example(name).partition(before)[0] if before else example(name)
    scope = {"keras": keras, "keras_hub": keras_hub, "keras_diet": keras_diet, "np": np}
    exec(compile(code, name, "exec"), scope)
    return scope


@pytest.mark.parametrize(
    "name, count",
    [
        ("WarmupLinearDecay", 1),
        *(
            pytest.param(name, count, marks=pytest.mark.any_backend)
            for name, count in (
                ("mask_tokens", 1),
                ("masked_lm_dataset", 1),
                ("pack_text_files", 1),
                ("split_sentences", 1),
                ("train_wordpiece_vocabulary", 1),
                ("write_packed", 2),
            )
        ),
    ],
)
def test_comments_show_the_values(name, count, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Lines such as `expression  # value`. A remark may follow the value.
    found = re.findall(
        r"^(\S.*?)(?:  |\n)# ([\[(\"\d].*?)(?:, of .*)?$", example(name), re.MULTILINE
    )
    assert len(found) == count
    for expression, value in found:
        result = eval(expression, run(name, before=expression))
        assert result == (pytest.approx(eval(value)) if "." in value else eval(value))
