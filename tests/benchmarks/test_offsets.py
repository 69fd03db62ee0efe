"""The check of offsets on data sets."""

import json

import pytest

from benchmarks import offsets

SPANS = [(0, 3), (4, 9), (9, 9), (9, 11)]


@pytest.mark.any_backend
@pytest.mark.parametrize(
    "answer, start, expected",
    [
        ("the", 0, "same"),
        ("quick", 4, "same"),
        ("the quickly", 0, "same"),
        ("qui", 4, "crossed"),
        ("uick", 5, "crossed"),
        ("he quick", 1, "crossed"),
        # A border in white space, and an answer that is not at its place.
        ("the ", 0, "other"),
        ("fox", 0, "other"),
        (" ", 3, "other"),
    ],
)
def test_answers(answer, start, expected):
    assert offsets.check_answer("the quickly", SPANS, answer, start) == expected


def write_data(folder):
    answers = [{"text": "fox", "answer_start": 4}, {"text": "ox sleeps", "answer_start": 5}]
    questions = [{"question": "Who sleeps?", "answers": answers}]
    text = {"data": [{"paragraphs": [{"context": "The fox sleeps.", "qas": questions}]}]}
    (folder / "xquad").mkdir()
    (folder / "xquad" / "xquad.en.json").write_text(json.dumps(text))
    (folder / "xnli").mkdir()
    pairs = [f"Der Fuchs {i} schläft\tEr \x85 sieht \u2028 {i}\tneutral\r\n" for i in range(30)]
    (folder / "xnli" / "dev-de.tsv").write_text("".join(pairs), encoding="utf-8", newline="")


@pytest.mark.any_backend
def test_results(tmp_path, capsys, monkeypatch):
    write_data(tmp_path)
    output = tmp_path / "offsets.json"
    command = ["--data", str(tmp_path), "--vocabulary-size", "60", "--output", str(output)]
    train = offsets.models.DietBertSentencePieceTokenizer.from_texts
    monkeypatch.setattr(
        offsets.models.DietBertSentencePieceTokenizer,
        "from_texts",
        lambda texts, size, **options: train(texts, size, "bpe", **options),
    )
    monkeypatch.setattr(
        offsets.pretraining,
        "train_wordpiece_vocabulary",
        lambda *args, **options: ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fox", "the", "."],
    )
    offsets.main(command)
    cells = json.loads(output.read_text())["cells"]
    names = [f"{name}, {data}" for name in offsets.TOKENIZERS for data in ("xquad en", "xnli de")]
    assert list(cells) == names
    expected = {"texts": 2, "different_ids": 0, "answers": 2, "same": 1, "crossed": 1, "other": 0}
    assert cells["WordPiece, xquad en"] == expected
    # Each line is a different pair, and other line breaks do not split it.
    for name in offsets.TOKENIZERS:
        assert cells[f"{name}, xnli de"]["texts"] == 60
        assert cells[f"{name}, xnli de"]["different_ids"] == 0
    assert "| WordPiece, xquad en | 2 | 0 | 2 | 50.00 % | 50.00 % | 0.00 % |" in (
        output.with_suffix(".md").read_text()
    )
    # Results that exist are not computed again.
    monkeypatch.setattr(offsets, "make_tokenizer", None)
    offsets.main([*command, "--resume"])
    assert list(json.loads(output.read_text())["cells"]) == names
    assert "WordPiece, xquad en" in capsys.readouterr().out


@pytest.mark.any_backend
def test_different_ids_are_counted():
    class Wrong:
        def __call__(self, texts):
            return [[5, 6], [7]]

        def tokenize_with_offsets(self, text):
            return {"a b": ([5, 6], [(0, 1), (2, 3)]), "c": ([8], [(0, 1)])}[text]

    counts = offsets.check_texts(Wrong(), [("a b", [("b", 2)]), ("c", [])])
    assert (counts["texts"], counts["different_ids"], counts["same"]) == (2, 1, 1)


@pytest.mark.any_backend
def test_missing_data_is_named(tmp_path):
    with pytest.raises(SystemExit, match="--data has no texts"):
        offsets.main(["--data", str(tmp_path)])
