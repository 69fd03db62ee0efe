"""The comments in the examples of docstrings show the right values."""

import inspect
import re

import keras
import keras_hub
import numpy as np
import pytest

import keras_diet


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "name, count",
    [
        ("WarmupLinearDecay", 1),
        ("mask_tokens", 1),
        ("masked_lm_dataset", 1),
        ("pack_text_files", 1),
        ("split_sentences", 1),
        ("train_wordpiece_vocabulary", 1),
        ("write_packed", 2),
    ],
)
def test_comments_show_the_values(name, count, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    docstring = inspect.getdoc(getattr(keras_diet.pretraining, name))
    code = re.search(r"```python\n(.*?)```", docstring, re.DOTALL)[1]
    # Lines such as `expression  # value`. A remark may follow the value.
    found = re.findall(r"^(\S.*?)(?:  |\n)# ([\[(\"\d].*?)(?:, of .*)?$", code, re.MULTILINE)
    assert len(found) == count
    for expression, value in found:
        scope = {"keras": keras, "keras_hub": keras_hub, "keras_diet": keras_diet, "np": np}
        exec(code.partition(expression)[0], scope)
        result = eval(expression, scope)
        assert result == (pytest.approx(eval(value)) if "." in value else eval(value))
