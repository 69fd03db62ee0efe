"""Trained sentence encoders: `examples/search_text.py` and `benchmarks/trained_encoders.py`."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from keras_diet.models import DietBertTextEmbedder
from tests.examples import fixture_of
from tests.models.tasks import tiny_preprocessor
from tests.models.tiny import TEXTS, randomize_weights, tiny_backbone

# What they call has tests on every backend.
pytestmark = pytest.mark.any_backend
script = fixture_of("search_text")
ROOT = Path(__file__).parents[1]


@pytest.fixture
def encoder(tmp_path):
    backbone = randomize_weights(tiny_backbone(position_encoding="input", segment_encoding="input"))
    embedder = DietBertTextEmbedder(backbone, tiny_preprocessor("embedder"))
    embedder.export_to_hugging_face(tmp_path / "encoder", "bert")
    return tmp_path / "encoder"


def test_each_query_finds_its_text(script, encoder, tmp_path, capsys):
    file = tmp_path / "text.txt"
    file.write_text("\n\n\n\n".join(text.replace(" ", "\n", 1) for text in TEXTS))
    arguments = ["--text", str(file), "--query", TEXTS[3], TEXTS[1]]
    arguments += ["--top-k", "2", "--output-dir", str(tmp_path / "run")]
    other = shutil.copytree(encoder, tmp_path / "other")
    for folder, is_new in ((encoder, True), (encoder, False), (other, True)):
        script.main([str(folder), *arguments])
        output = capsys.readouterr().out
        assert (f"{len(TEXTS)} paragraphs are embedded." in output) == is_new
        results = output.partition(f"\n{TEXTS[3]}\n")[2].splitlines()
        assert results[0] == f"  1.000  {TEXTS[3]}"
        assert results[4] == f"  1.000  {TEXTS[1]}"


def test_both_libraries_embed_alike(encoder, tmp_path):
    from benchmarks import trained_encoders

    rows = [["", "", "", "", str(i % 4), TEXTS[i], TEXTS[(i * 2) % 5]] for i in range(5)]
    (tmp_path / "sts-test.tsv").write_text("\n".join("\t".join(row) for row in rows))
    output = tmp_path / "results.json"
    trained_encoders.main(
        [str(encoder), "--data", str(tmp_path), "--rounds", "2", "--output", str(output)]
    )
    results = json.loads(output.read_text())
    cell = results["cells"]["encoder"]
    assert cell["largest_difference"] < 1e-5
    embedder = DietBertTextEmbedder.from_hugging_face(encoder)
    first, second = (embedder.encode_text([row[i] for row in rows], verbose=0) for i in (5, 6))
    cosines = (np.asarray(first) * np.asarray(second)).sum(axis=-1)
    expected = scipy.stats.spearmanr(cosines, [float(row[4]) for row in rows]).statistic
    assert cell["spearman"] == pytest.approx(dict.fromkeys(cell["spearman"], expected))
    assert max(results["types"].values()) < 2e-5
    assert np.shape(cell["seconds"]["32"]["keras_diet"]) == (2,)
    assert '| encoder | `"input"` |' in output.with_suffix(".md").read_text()


def test_the_largest_difference_counts(encoder, monkeypatch):
    from benchmarks import trained_encoders

    make = trained_encoders.with_transformers

    def with_one_other(folder, embedder):
        embed = make(folder, embedder)
        return lambda texts: embed(texts) + 0.01 * (np.array(texts) == TEXTS[2])[:, None]

    monkeypatch.setattr(trained_encoders, "with_transformers", with_one_other)
    pairs = (TEXTS[:3], TEXTS[2:], np.arange(3))
    cell = trained_encoders.measure_encoder(encoder, pairs, 1)
    assert cell["largest_difference"] == pytest.approx(0.01 * 15**0.5, abs=1e-5)


def test_the_page_has_the_numbers_of_the_files():
    page = (ROOT / "docs/guides/trained_encoders.md").read_text()
    names = {"torch": "PyTorch", "jax": "JAX", "tensorflow": "TensorFlow"}
    types = {}
    for backend, name in names.items():
        file = ROOT / f"docs/benchmarks/trained_encoders_{backend}.json"
        results = json.loads(file.read_text())
        for encoder, cell in results["cells"].items():
            numbers = [f"{value:.5f}" for value in cell["spearman"].values()]
            numbers += [f"{cell['largest_difference']:.1e}"]
            numbers += [f"{cell['ratio'][size][0]:.2f}" for size in ("1", "32")]
            assert f"| {encoder} | {name} | {' | '.join(numbers)} |\n" in page
        for model_type, value in results["types"].items():
            types.setdefault(model_type, []).append(f"{value:.1e}")
    for model_type, numbers in types.items():
        assert f'| `"{model_type}"` | {" | ".join(numbers)} |\n' in page
