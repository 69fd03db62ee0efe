"""The code in docstrings, pages and notebooks runs. Links work, and arguments are documented."""

import ast
import contextlib
import inspect
import json
import re
from pathlib import Path

import keras
import keras_hub
import numpy as np
import pytest

import keras_diet
from keras_diet import analysis, layers, metrics, models, pretraining, samplers, training
from tests.fixtures import (  # noqa: F401
    eager_steps,
    numpy_initializers,
    unpatched,
)

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docs/notebooks").glob("*.ipynb")),
]
# The first code that a reader runs, and the page that has other code for TensorFlow. The other
# pages combine calls that have tests on every backend, so their code runs once.
PAGES_OF_BACKENDS = {
    "README.md": [],
    "docs/guides/serve.md": [
        pytest.mark.skipif(keras.config.backend() == "jax", reason="has no code for JAX only")
    ],
}
# What a reader runs first, as the reader runs it. Examples of other pages train a step or two, and
# take less time when their steps are not compiled.
COMPILED_PAGES = ("README.md", "docs/notebooks/finetune_and_serve.ipynb")
SHORTER = {
    r"epochs=[12]\d": "epochs=1",
    # Of examples, and of documents.
    r"\b([56])000\b": r"\g<1>00",
    r"topics\.topics\.values\(\)": "list(topics.topics.values())[:9]",
    r"vocabulary_size=2000": "vocabulary_size=500",
}
MODULES = (layers, models, metrics, samplers, training, pretraining, analysis)
# What users call on each task.
METHODS = (*("fit", "evaluate", "predict", "from_preset", "save_to_preset", "export", "quantize"),)


def python_blocks(text):
    return [inspect.cleandoc(block) for block in re.findall(r"```python\n(.*?)```", text, re.S)]


def cells_of(notebook, kind):
    """The cells of a notebook, without those that are not run."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [
        "".join(cell["source"])
        for cell in cells
        if cell["cell_type"] == kind and "skip-execution" not in cell["metadata"].get("tags", ())
    ]


def text_of(page):
    if page.suffix == ".ipynb":
        return "\n\n".join(cells_of(page, "markdown"))
    return page.read_text(encoding="utf-8")


def code_of(page):
    if page.name == "serve.md" and keras.config.backend() == "tensorflow":
        # The blocks for a backend, and their model. ONNX files of others take a minute.
        words = ("models.DietBertBackbone(", '"exported"', "keras.config.backend()")
        blocks = [b for b in python_blocks(text_of(page)) if any(word in b for word in words)]
        assert len(blocks) > 3
        return "\n".join(blocks)
    if page.suffix == ".ipynb":
        # Long trainings show that a model learns. Here a few steps show that they run.
        code = "\n".join(cells_of(page, "code"))
        for long, short in SHORTER.items():
            code = re.sub(long, short, code)
        return code
    return "\n".join(python_blocks(text_of(page)))


def public_objects():
    """Every public class and function as a test case."""
    return [
        pytest.param(public, id=name)
        for module in MODULES
        for name in module.__all__
        if callable(public := getattr(module, name))
    ]


def pages_with_code(compiled):
    """The pages with code whose steps are compiled, or the others, as test cases."""
    names = {page: page.relative_to(ROOT).as_posix() for page in PAGES}
    missing = {*PAGES_OF_BACKENDS, *COMPILED_PAGES} - set(names.values())
    assert not missing, f"these pages do not exist: {missing}"
    return [
        pytest.param(
            page,
            id=name,
            marks=PAGES_OF_BACKENDS.get(name, [pytest.mark.any_backend]),
        )
        for page, name in names.items()
        if code_of(page) and (name in COMPILED_PAGES) == compiled
    ]


def run(code):
    names = {"np": np, "keras": keras, "keras_hub": keras_hub, "keras_diet": keras_diet}
    names["models"] = models
    exec(compile(code, "<documentation>", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def position_encodings(monkeypatch):
    """Undo what an example registers."""
    registry = layers.transformer.position_encodings
    monkeypatch.setattr(registry, "POSITION_ENCODINGS", dict(registry.POSITION_ENCODINGS))


@pytest.mark.any_backend
@pytest.mark.parametrize("public", public_objects())
def test_docstring_example_runs(public):
    # `getdoc` removes the indentation, so that blocks start at the margin.
    blocks = python_blocks(inspect.getdoc(public))
    assert blocks, f"{public.__name__} has no example"
    for block in blocks:
        values, code = dict(shown_values(block)), f"\n{block}"
        for i, expression in enumerate(values):
            code = code.replace(f"\n{expression}", f"\nfound_{i} = {expression}", 1)
        names = run(code)
        for i, (expression, value) in enumerate(values.items()):
            found = names[f"found_{i}"]
            if isinstance(value, float | dict):
                assert pytest.approx(value, rel=1e-3) == found, expression
            else:
                np.testing.assert_equal(found, value, expression)


def shown_values(block):
    """The expressions of a block whose comments are values, such as `labels.shape  # (2, 2)`."""
    for expression, comment in re.findall(r"^([^#\s].*?)(?:  |\n)# ([^.].*)$", block, re.M):
        with contextlib.suppress(ValueError, SyntaxError):
            ast.parse(expression, mode="eval")
            value = re.sub(", of .*", "", comment)
            if "..." not in value:
                yield expression, ast.literal_eval(value)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "method",
    [
        *(getattr(models.DietBertTextClassifier, name) for name in METHODS),
        layers.PositionBias.compute_scores,
    ],
    ids=lambda method: method.__name__,
)
def test_docstring_of_method_is_whole(method):
    text = inspect.getdoc(method)
    for name in set(inspect.signature(method).parameters) - {"self", "args", "kwargs"}:
        assert re.search(rf"^ *{name}: ", text, re.M), f"{name} is not documented"
    returns_something = method.__name__ not in ("save_to_preset", "export", "quantize")
    assert ("Returns:" in text) == returns_something
    assert "Raises:" in text or method.__name__ == "compute_scores"
    (block,) = python_blocks(text)
    run(block)


@pytest.mark.usefixtures("unpatched")
@pytest.mark.parametrize("page", pages_with_code(compiled=True))
def test_code_of_first_pages_runs(page):
    run(code_of(page))


@pytest.mark.parametrize("page", pages_with_code(compiled=False))
def test_code_of_page_runs(page):
    run(code_of(page))


@pytest.mark.any_backend
def test_biases_of_pages_can_be_exported():
    """A length is a symbol in an exported program, of which Keras cannot guess the dtype."""
    without = [
        (page.name, call)
        for page in PAGES
        for call in re.findall(
            r"\bops\.arange\((?:[a-z_]+|ops\.shape\(\w+\)\[\d\])\)", page.read_text("utf-8")
        )
    ]
    assert without == [], "these calls need a dtype"


@pytest.mark.any_backend
def test_links_of_pages_lead_to_files():
    links = [
        (page, target)
        for page in PAGES
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text_of(page))
        if not target.startswith("http")
    ]
    assert len(links) > 100
    broken = [f"{page}: {target}" for page, target in links if not (page.parent / target).exists()]
    assert not broken, "\n".join(broken)


@pytest.mark.any_backend
def test_files_that_pages_name_exist():
    names = {
        name
        for page in PAGES
        for name in re.findall(
            r"`((?:tests|examples|benchmarks|keras_diet)/[\w./*]+)`", text_of(page)
        )
    }
    assert len(names) > 30
    assert not [name for name in names if not list(ROOT.glob(name))]


@pytest.mark.any_backend
@pytest.mark.parametrize("public", public_objects())
def test_docstring_names_every_argument(public):
    function = public.__init__ if inspect.isclass(public) else public
    documentation = inspect.getdoc(public)
    for name in list(inspect.signature(function).parameters):
        if name not in ("self", "args", "kwargs", "name"):
            assert re.search(rf"^ *{name}: ", documentation, re.M), f"{name} is not documented"


def documented_defaults(function, documentation):
    """The documented and the real default of each argument whose default is a literal."""
    for name, parameter in inspect.signature(function).parameters.items():
        entry = re.search(
            rf"^( *){name}: (.*?)(?=^\1\S|^\s*$|\Z)", documentation, re.MULTILINE | re.DOTALL
        )
        stated = entry and re.search(r"[Dd]efaults?\s+to\s+`([^`]*)`", entry[2])
        if stated and parameter.default is not parameter.empty:
            with contextlib.suppress(ValueError, SyntaxError):
                yield name, ast.literal_eval(stated[1]), parameter.default


@pytest.mark.any_backend
@pytest.mark.parametrize("public", public_objects())
def test_documented_defaults_are_those_of_the_code(public):
    functions = [(public.__init__ if inspect.isclass(public) else public, inspect.getdoc(public))]
    if inspect.isclass(public):
        functions += [
            (method, inspect.getdoc(method) or "")
            for name, method in inspect.getmembers(public, callable)
            if not name.startswith("_")
            and (getattr(method, "__module__", None) or "").startswith("keras_diet")
        ]
    for function, documentation in functions:
        for name, stated, default in documented_defaults(function, documentation):
            assert stated == default, f"`{name}` of {function.__qualname__}"


@pytest.mark.any_backend
def test_defaults_and_shown_values_are_found():
    shown = shown_values(inspect.getdoc(pretraining.write_packed))
    assert [value for _, value in shown] == [4, (4, 3)]
    pairs = documented_defaults(
        pretraining.sample_languages, inspect.getdoc(pretraining.sample_languages)
    )
    expected = [("sampling_exponent", 0.5), ("seed", 0), ("num_samples", None)]
    assert [(name, stated) for name, stated, _ in pairs] == expected


@pytest.mark.any_backend
def test_tables_have_the_rows_of_the_paper():
    code = code_of(ROOT / "docs/reproduction/tables.md")
    names = run(code.partition("for table in")[0])
    assert [len(table) for table in names["TABLES"]] == [9, 9, 15, 6, 7, 7]
