"""The pages of the results are made from the files beside them."""

import json
from pathlib import Path

import pytest

from benchmarks import (
    attention_implementations,
    deberta,
    decoding,
    gpu,
    recomputation,
    serving,
    single_texts,
    step_time_results,
    tpu_compile_results,
    trained_encoders,
)

pytestmark = pytest.mark.any_backend
FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
MAKERS = {
    "attention_implementations": attention_implementations,
    "deberta": deberta,
    "decoding": decoding,
    "gpu": gpu,
    "recomputation": recomputation,
    "serving": serving,
    "single_texts": single_texts,
    "step_time_jax": step_time_results,
    "step_time_tensorflow": step_time_results,
    "step_time_torch": step_time_results,
    "tpu_compile": tpu_compile_results,
    "trained_encoders": trained_encoders,
}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_pages_are_made_from_their_files(path):
    page = MAKERS[path.stem].make_page(json.loads(path.read_text(encoding="utf-8")))
    assert path.with_suffix(".md").read_text(encoding="utf-8") == page.rstrip() + "\n"
