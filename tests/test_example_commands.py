"""The commands in the docstrings of `examples/` are accepted."""

import importlib
import re
from pathlib import Path

import pytest

from tests.examples import EXAMPLES

pytestmark = pytest.mark.any_backend
SCRIPTS = [path.stem for path in EXAMPLES.glob("*.py") if "__main__" in path.read_text()]


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_commands_of_the_docstring_are_accepted(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    script = importlib.import_module(name)
    documentation = script.__doc__.replace("\\\n", " ")
    commands = re.findall(rf" examples/{name}\.py(.*)", documentation)
    assert commands
    for command in commands:
        for path in re.findall(r"\S+/preset", command):
            Path(path.split("=")[-1]).mkdir(parents=True, exist_ok=True)
        script.parse_arguments(command.split())
