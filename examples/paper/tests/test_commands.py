"""The commands in the docstrings of the experiments are accepted."""

import importlib
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_backend
SCRIPTS = (
    *("convert_bert", "finetune_glue", "finetune_qa", "finetune_xnli", "inspect_positions"),
    *("pretrain_masked_lm", "train_embedder", "translate", "xtreme_average"),
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_commands_of_the_docstring_are_accepted(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = importlib.import_module(f"examples.paper.{name}")
    documentation = script.__doc__.replace("\\\n", " ")
    commands = re.findall(rf" examples\.paper\.{name}\b(.*)", documentation)
    assert commands
    for command in commands:
        for path in re.findall(r"\S+/preset", command):
            Path(path.split("=")[-1]).mkdir(parents=True, exist_ok=True)
        script.parse_arguments(command.split())
