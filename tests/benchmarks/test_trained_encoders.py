"""Trained sentence encoders beside the libraries that they come from."""

import json

import numpy as np
import pytest
import scipy.stats

from keras_diet.models import DietBertTextEmbedder
from tests.models.tasks import tiny_preprocessor
from tests.models.tiny import TEXTS, randomize_weights, tiny_backbone

# What they call has tests on every backend.
pytestmark = pytest.mark.any_backend
WORDS = " ".join(TEXTS).split()


@pytest.fixture
def encoder(tmp_path):
    backbone = randomize_weights(tiny_backbone(position_encoding="input", segment_encoding="input"))
    embedder = DietBertTextEmbedder(backbone, tiny_preprocessor("embedder"))
    embedder.export_to_hugging_face(tmp_path / "encoder", "bert")
    return tmp_path / "encoder"


def test_both_libraries_embed_alike(encoder, tmp_path):
    from benchmarks import trained_encoders

    rows = [["", "", "", "", str(i % 4), TEXTS[i], TEXTS[(i * 2) % 5]] for i in range(5)]
    (tmp_path / "sts-test.tsv").write_text("\n".join("\t".join(row) for row in rows))
    output = tmp_path / "results.json"
    trained_encoders.main(
        [str(encoder), "--data", str(tmp_path), "--rounds", "2", "--output", str(output)]
    )
    results = json.loads(output.read_text())["PyTorch"]
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


def write_stsb(folder, rng):
    """The cosine of a pair has the order of the share of words that both texts have."""
    for split, number in (("train", 24), ("test", 9)):
        rows = []
        for _ in range(number):
            first = list(rng.choice(WORDS, 6))
            shared = int(rng.integers(0, 7))
            second = first[:shared] + list(rng.choice(WORDS, 6 - shared))
            rows.append(
                ["", "", "", "", f"{shared * 5 / 6:.3f}", " ".join(first), " ".join(second)]
            )
        # Some rows have more columns.
        rows[1] += ["", ""]
        (folder / f"sts-{split}.tsv").write_text("\n".join("\t".join(row) for row in rows))


def test_both_libraries_train_alike(encoder, tmp_path, rng):
    """Without dropout and with the same batches, they end alike."""
    from benchmarks import train_embedders

    write_stsb(tmp_path, rng)
    path = tmp_path / "encoder" / "config.json"
    config = json.loads(path.read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    path.write_text(json.dumps(config))
    output = tmp_path / "results.json"
    arguments = [str(encoder), "--data", str(tmp_path), "--seeds", "3", "--batch-size", "4"]
    train_embedders.main([*arguments, "--learning-rate", "1e-3", "--output", str(output)])
    batch = (TEXTS[:4], TEXTS[1:5], np.array([0.1, 0.7, 0.4, 1.0]))
    libraries = (train_embedders.Ours, train_embedders.Theirs)
    sides = [library(tmp_path / "encoder", 1e-3, 15) for library in libraries]
    losses = [[side.step(*batch) for _ in range(6)] for side in sides]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    cell = json.loads(output.read_text())["PyTorch"]["cells"]["3"]
    assert cell["before"]["keras_diet"] == pytest.approx(cell["before"]["sentence-transformers"])
    assert cell["after"]["keras_diet"] == pytest.approx(
        cell["after"]["sentence-transformers"], abs=0.02
    )
    assert cell["after"]["keras_diet"] != pytest.approx(cell["before"]["keras_diet"], abs=0.001)
    assert len(cell["seconds"]["keras_diet"]) == 5
    assert "| 3 | " in output.with_suffix(".md").read_text()
