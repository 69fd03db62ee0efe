"""The code in docstrings, README and docs runs."""

import inspect
import re
from pathlib import Path

import keras
import keras_hub
import numpy as np
import pytest

import keras_diet
from keras_diet import analysis, layers, models, pretraining
from tests.fixtures import quick_quantization  # noqa: F401

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = (layers, models, pretraining, analysis)
NAMES = [getattr(module, name) for module in MODULES for name in module.__all__]
PUBLIC = [public for public in NAMES if callable(public)]


def python_blocks(text):
    return [inspect.cleandoc(block) for block in re.findall(r"```python\n(.*?)```", text, re.S)]


def run(code):
    names = {"np": np, "keras": keras, "keras_hub": keras_hub, "keras_diet": keras_diet}
    exec(compile(code, "<documentation>", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def forgotten_encodings(monkeypatch):
    """What an example registers is gone after it."""
    registry = layers.transformer.position_encodings
    monkeypatch.setattr(registry, "POSITION_ENCODINGS", dict(registry.POSITION_ENCODINGS))


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.__name__)
def test_docstring_example_runs(public):
    # `getdoc` removes the indentation, so that blocks start at the margin.
    blocks = python_blocks(inspect.getdoc(public))
    assert blocks, f"{public.__name__} has no example"
    for block in blocks:
        run(block)


@pytest.mark.usefixtures("quick_quantization")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_of_page_runs(page):
    run("\n".join(python_blocks(page.read_text(encoding="utf-8"))))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_page_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert target.startswith("http") or (page.parent / target).exists(), target


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.__name__)
def test_docstring_names_every_argument(public):
    function = public.__init__ if inspect.isclass(public) else public
    documentation = inspect.getdoc(public)
    for name in list(inspect.signature(function).parameters):
        if name not in ("self", "args", "kwargs", "name"):
            assert re.search(rf"^ *{name}: ", documentation, re.M), f"{name} is not documented"


def test_public_names_are_all_that_a_package_shows():
    assert set(keras_diet.__all__) >= {"layers", "models", "pretraining", "analysis", "__version__"}


def test_tables_have_the_rows_of_the_paper():
    page = ROOT / "docs" / "tables.md"
    code = "\n".join(python_blocks(page.read_text(encoding="utf-8")))
    names = run(code.partition("for table in")[0])
    assert [len(table) for table in names["TABLES"]] == [9, 9, 15, 6, 7, 7]
