"""The pages of the results are made from the files beside them."""

import functools
import json
from pathlib import Path

import pytest

from benchmarks import (
    deberta,
    decoding,
    gpu,
    serving,
    single_texts,
    step_time,
    time_and_memory,
    tpu_compile,
    trained_encoders,
)

pytestmark = pytest.mark.any_backend
FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
MAKERS = {
    "attention_implementations": functools.partial(
        time_and_memory.make_page, "attention_implementation"
    ),
    "deberta": deberta.make_page,
    "decoding": decoding.make_page,
    "gpu": gpu.make_page,
    "recomputation": functools.partial(time_and_memory.make_page, "recompute"),
    "serving": serving.make_page,
    "single_texts": single_texts.make_page,
    "step_time_jax": step_time.make_page,
    "step_time_tensorflow": step_time.make_page,
    "step_time_torch": step_time.make_page,
    "tpu_compile": tpu_compile.make_page,
    "trained_encoders": trained_encoders.make_page,
}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_pages_are_made_from_their_files(path):
    page = MAKERS[path.stem](json.loads(path.read_text(encoding="utf-8")))
    assert path.with_suffix(".md").read_text(encoding="utf-8") == page.rstrip() + "\n"
