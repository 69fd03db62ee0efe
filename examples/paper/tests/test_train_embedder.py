"""`train_embedder.py` and `benchmarks/train_embedders.py`: stages, resuming, results."""

import json

import numpy as np
import pytest

from examples.paper.tests.helpers import Crash, add_to_fit, fixture_of, save_preset
from keras_diet.metrics import correlation_metrics
from keras_diet.models import DietBertTextEmbedder
from tests.models.tasks import tiny_preprocessor
from tests.models.tiny import TEXTS, randomize_weights, tiny_backbone

pytestmark = pytest.mark.any_backend
script = fixture_of("train_embedder")
WORDS = " ".join(TEXTS).split()


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


@pytest.fixture
def encoder(tmp_path):
    backbone = randomize_weights(tiny_backbone(position_encoding="input", segment_encoding="input"))
    embedder = DietBertTextEmbedder(backbone, tiny_preprocessor("embedder"))
    embedder.export_to_hugging_face(tmp_path / "encoder", "bert")
    return str(tmp_path / "encoder")


def write_nli(path, number=9):
    """Each premise has a hypothesis of each class, but the last one has only two."""
    lines = []
    for i in range(number):
        premise = f"{WORDS[i]} {WORDS[i + 1]}"
        kinds = {"neutral": "a mat", "contradiction": WORDS[-i], "entailment": WORDS[i]}
        lines += [f"{premise}\t{text}\t{kind}" for kind, text in kinds.items()]
    path.write_text("\n".join(lines[:-1]))
    return path


def test_entailed_texts_come_with_their_contradictions(script, tmp_path):
    premises, entailed, contradictions = script.entailed(write_nli(tmp_path / "nli.tsv"), None)
    assert premises == [f"{WORDS[i]} {WORDS[i + 1]}" for i in range(8)]
    assert entailed == WORDS[:8]
    assert contradictions == [WORDS[-i] for i in range(8)]


def test_neighbors_and_what_is_held_out(script):
    assert script.neighbors([["a", "b", "c"], ["d", "e"]]) == (["a", "d"], ["b", "e"])
    assert script.split(list(range(12))) == ([*range(1, 10), 11], [0, 10])


def test_both_stages_and_their_results(script, encoder, tmp_path, rng, monkeypatch, capsys):
    write_stsb(tmp_path, rng)
    arguments = ["--encoder", encoder, "--nli", str(write_nli(tmp_path / "nli.tsv"))]
    arguments += [
        "--stsb",
        str(tmp_path),
        "--batch-size",
        "8",
        "--epochs",
        "2",
        "--save-every",
        "1",
    ]
    arguments += ["--learning-rate", "1e-2", "--warmup-proportion", "0", "--num-chunks", "2"]
    folder = tmp_path / "run"
    # The second stage has six steps.
    crash = Crash(None)
    with pytest.MonkeyPatch.context() as patch:
        add_to_fit(patch, crash)
        crash.step = 4
        with pytest.raises(KeyboardInterrupt):
            script.main([*arguments, "--output-dir", str(folder)])
        crash.step = None
        script.main([*arguments, "--output-dir", str(folder)])
    assert crash.begun == [0, 1, 0, 1, 2, 3, 4, 4, 5]
    script.main([*arguments, "--output-dir", str(tmp_path / "whole")])
    results = json.loads((folder / "results.json").read_text())
    assert results == json.loads((tmp_path / "whole" / "results.json").read_text())
    assert list(results) == ["before", "after entailment", "after scores"]
    assert len({row["spearman"] for row in results.values()}) == 3
    table = (folder / "results.md").read_text().splitlines()
    assert table[0] == "| | pearson | spearman |"
    assert table[4] == "| after scores | {pearson:.4f} | {spearman:.4f} |".format(
        **results["after scores"]
    )
    assert (folder / "plot.png").stat().st_size > 1000
    embedder = DietBertTextEmbedder.from_preset(str(folder / "preset"))
    assert embedder.num_chunks == 2
    (first, second), scores = script.read_stsb(tmp_path, "test")
    cosines = [
        embedder.similarity(*map(embedder.encode_text, pair))
        for pair in zip(first, second, strict=True)
    ]
    found = correlation_metrics(scores, np.reshape(cosines, -1))
    assert results["after scores"] == pytest.approx(found, abs=1e-4)
    back = DietBertTextEmbedder.from_hugging_face(folder / "sentence_transformers")
    found = [np.asarray(each.encode_text(TEXTS, verbose=0)) for each in (embedder, back)]
    np.testing.assert_allclose(*found, atol=1e-5)


def test_neighbors_of_the_text(script, tmp_path, capsys):
    """Without data, each tenth paragraph is held out. 11 pairs in batches of 10 leave one out."""
    paragraphs = [
        f"The quick {WORDS[i]} of the dog. The {WORDS[i]} on the tall mat." for i in range(14)
    ]
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join([*paragraphs, "One sentence which is alone in its place."]))
    arguments = ["--encoder", save_preset(tmp_path / "preset"), "--text", str(file)]
    arguments += ["--batch-size", "10", "--output-dir", str(tmp_path / "run")]
    script.main([*arguments, "--query", paragraphs[3], "the cat"])
    output = capsys.readouterr().out
    assert "neighbors: 10 examples" in output
    assert "No folder of sentence-transformers was written. No type" in output
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert list(results) == ["before", "after neighbors"]
    assert results["before"]["recall@10"] == 1
    assert f"\n{paragraphs[3]}\n  1.000  {paragraphs[3]}\n" in output
