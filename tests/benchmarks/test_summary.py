"""The summary compares the results with their targets."""

import json
from pathlib import Path

import pytest

from benchmarks import (
    attention_implementations,
    decoding,
    document_masks,
    gpu,
    initial_scores_page,
    long_sequences,
    multilingual,
    packed_texts,
    question_answering,
    recomputation,
    single_texts,
    step_time_results,
    study_page,
    summary,
    tpu_compile_results,
    train_embedders,
    trained_encoders,
    translation,
)

pytestmark = pytest.mark.any_backend


FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks"


def test_the_page_has_the_summary_of_its_files(capsys):
    summary.main([str(FOLDER)])
    tables = capsys.readouterr().out.strip().split("\n\n")
    assert len(tables) == 2
    for table in tables:
        assert table in (FOLDER / "summary.md").read_text()


MAKERS = {
    "attention_implementations": attention_implementations.make_page,
    "decoding": decoding.make_page,
    "document_masks": document_masks.make_page,
    "gpu": gpu.make_page,
    "initial_scores": initial_scores_page.make_page,
    "long_sequences": long_sequences.make_page,
    "multilingual": multilingual.make_page,
    "packed_texts": packed_texts.make_page,
    "question_answering": question_answering.make_page,
    "recomputation": recomputation.make_page,
    "single_texts": single_texts.make_page,
    "other_encodings": step_time_results.make_page,
    "step_time": step_time_results.make_page,
    "study": study_page.make_page,
    "tpu_compile": tpu_compile_results.make_page,
    "train_embedders": train_embedders.make_page,
    "trained_encoders": trained_encoders.make_page,
    "translation": translation.make_page,
}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_pages_are_made_from_their_files(path):
    (make_page,) = (make for name, make in MAKERS.items() if path.name.startswith(name))
    page = make_page(json.loads(path.read_text(encoding="utf-8")))
    assert path.with_suffix(".md").read_text(encoding="utf-8") == page.rstrip() + "\n"
