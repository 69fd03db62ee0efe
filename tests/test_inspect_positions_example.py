"""The pictures of trained models: `examples/inspect_positions.py`."""

import contextlib
import importlib
import io
import json
import re
from pathlib import Path

import keras_hub
import numpy as np
import pytest

from keras_diet import analysis, models
from tests.models.tiny import VOCABULARY, randomize_weights, tiny_backbone

SCRIPT = Path(__file__).parents[1] / "examples" / "inspect_positions.py"
PICTURES = {
    "2": "figure_2_rank_of_scores.png",
    "4": "figure_4_position_scores.png",
    "5": "figure_5_position_similarity.png",
    "6": "figure_6_position_and_segment_scores.png",
    "7": "figure_7_shifting_patterns.png",
    "8": "figure_8_rank_of_position_scores.png",
}
TEXT = "\n\n".join(["the quick brown fox jumped over the lazy dogs . a bird sings"] * 20)


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPT.parent)
        yield importlib.import_module("inspect_positions")


def diet_bert(**arguments):
    preprocessor = models.DietBertMaskedLMPreprocessor(
        models.DietBertTokenizer(VOCABULARY), sequence_length=13, mask_selection_length=2
    )
    backbone = randomize_weights(tiny_backbone(**arguments))
    return models.DietBertMaskedLM(backbone, preprocessor)


@pytest.fixture(scope="module")
def presets(tmp_path_factory):
    """A folder with presets, and the backbone of each."""
    folder = tmp_path_factory.mktemp("presets")
    tasks = {
        "diet_abs": diet_bert(),
        "diet_rel": diet_bert(position_encoding="diet_rel", num_layers=1),
        "input": diet_bert(position_encoding="input", segment_encoding="input"),
        "none": diet_bert(position_encoding="none", segment_encoding="none"),
        "linformer": diet_bert(projection_dim=5, segment_encoding="none"),
    }
    for name, task in tasks.items():
        task.save_to_preset(str(folder / name / "preset"))
    return folder, {name: task.backbone for name, task in tasks.items()}


def run(script, folder, *options, text=TEXT):
    """Run the script, which draws into `folder`, and return what it prints and its numbers."""
    output_dir = folder / "figures"
    corpus = folder / "corpus.txt"
    corpus.write_text(text, encoding="utf-8")
    arguments = ["--output-dir", str(output_dir), "--text", str(corpus), "--batch-size", "3"]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        script.main([*map(str, options), *arguments])
    return output.getvalue(), json.loads((output_dir / "figures.json").read_text())


def pictures(folder):
    files = sorted((folder / "figures").glob("*.png"))
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    return [re.match(r"figure_(\d)", file.name)[1] for file in files]


@pytest.fixture(scope="module")
def two_models(script, presets, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    paths = [presets[0] / name / "preset" for name in ("diet_abs", "input")]
    return folder, *run(script, folder, *paths)


def test_makes_every_figure(two_models):
    folder, _, numbers = two_models
    assert pictures(folder) == list(PICTURES)
    assert {path.name for path in (folder / "figures").iterdir()} == {
        *PICTURES.values(),
        "figures.json",
    }
    assert list(numbers["models"]) == ["diet_abs", "input"]


def test_numbers_are_those_of_the_models(presets, two_models):
    numbers = two_models[2]["models"]
    backbone = presets[1]["diet_abs"]
    scores = analysis.position_scores(backbone)
    assert numbers["diet_abs"]["position_encoding"] == "diet_abs"
    assert numbers["diet_abs"]["rank_of_position_scores"] == np.full((2, 3), 5).tolist()
    np.testing.assert_allclose(
        numbers["diet_abs"]["distance_variance"], analysis.distance_variance(scores), atol=1e-5
    )
    for name, signed in (("attended_distance", False), ("signed_attended_distance", True)):
        expected = analysis.attended_distance(scores, signed=signed)
        np.testing.assert_allclose(numbers["diet_abs"][name], expected, atol=1e-4)
    np.testing.assert_allclose(
        numbers["diet_abs"]["segment_scores"], analysis.segment_scores(backbone), atol=1e-6
    )
    pairs = analysis.position_similarity(presets[1]["input"])[np.triu_indices(13, 1)]
    similarity = numbers["input"]["position_similarity"]
    assert similarity["mean"] == pytest.approx(pairs.mean(), abs=1e-5)
    assert similarity["quantiles"]["0.75"] == pytest.approx(np.quantile(pairs, 0.75), abs=1e-5)


def test_ranks_of_the_batch_are_those_of_theorem_1(two_models):
    numbers = two_models[2]["models"]
    # The sequences differ from each other and have no padding.
    assert np.max(numbers["input"]["rank_of_scores"]) == 5
    assert np.min(numbers["diet_abs"]["rank_of_scores"]) > 5
    assert two_models[2]["length"] == 13
    assert two_models[2]["batch_size"] == 3


def test_says_what_is_left_out_and_why(two_models):
    printed = two_models[1]
    assert "Figure 5 without diet_abs: `backbone` must have position embeddings" in printed
    assert "Figure 6 without input: `backbone` must have segment_encoding='per-head'" in printed
    numbers = two_models[2]["models"]
    assert numbers["diet_abs"]["position_similarity"] is None
    assert numbers["input"]["segment_scores"] is None


def test_prints_a_table(two_models):
    _, printed, numbers = two_models
    row = next(line for line in printed.splitlines() if line.startswith("diet_abs"))
    values = numbers["models"]["diet_abs"]
    assert row.split()[1:] == [
        f"{np.mean(values['rank_of_scores'][0]):.2f}",
        "5.00",
        f"{np.mean(values['distance_variance'][0]):.2f}",
        f"{np.mean(values['attended_distance'][0]):.2f}",
        "-",
    ]


@pytest.mark.any_backend
def test_figures_that_no_model_has_are_not_made(script, presets, tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / PICTURES["4"]).write_text("of an earlier run")
    printed, numbers = run(script, tmp_path, presets[0] / "none" / "preset")
    assert pictures(tmp_path) == ["2"]
    for number in "45678":
        assert f"No {PICTURES[number]}: no model has what it shows." in printed
    assert "Figures 4, 7 and 8 without none: `backbone` has no positional scores" in printed
    assert numbers["models"]["none"]["rank_of_position_scores"] is None
    assert "none" in printed.splitlines()[-2]


@pytest.mark.any_backend
def test_projected_keys_have_no_distances(script, presets, tmp_path):
    printed, numbers = run(script, tmp_path, presets[0] / "linformer" / "preset")
    assert pictures(tmp_path) == ["2", "4", "8"]
    assert "Figure 7 without linformer" in printed
    assert numbers["models"]["linformer"]["distance_variance"] is None
    assert np.shape(numbers["models"]["linformer"]["rank_of_scores"]) == (2, 3)


@pytest.mark.any_backend
def test_bert_of_kerashub_is_compared(script, presets, tmp_path):
    bert = randomize_weights(
        keras_hub.models.BertBackbone(31, 2, 3, 15, 23, dropout=0.0, max_sequence_length=11)
    )
    task = keras_hub.models.BertMaskedLM(
        bert,
        keras_hub.models.BertMaskedLMPreprocessor(
            keras_hub.models.BertTokenizer(VOCABULARY), sequence_length=11
        ),
    )
    task.save_to_preset(str(tmp_path / "bert"))
    _, numbers = run(script, tmp_path, tmp_path / "bert", presets[0] / "diet_rel" / "preset")
    assert numbers["length"] == 11
    assert numbers["models"]["bert"]["position_encoding"] == "input"
    np.testing.assert_array_equal(numbers["models"]["bert"]["rank_of_position_scores"], 5)
    share = np.array(numbers["models"]["diet_rel"]["distance_variance"])
    np.testing.assert_allclose(share, np.ones((1, 3)), atol=1e-6)


@pytest.mark.any_backend
def test_maps_have_the_layer_and_the_heads_asked_for(script, presets, tmp_path, monkeypatch):
    drawn = []
    plot_scores = analysis.plot_scores

    def record(scores, layers=None, heads=None):
        drawn.append((scores, layers, heads))
        return plot_scores(scores, layers, heads)

    monkeypatch.setattr(script.analysis, "plot_scores", record)
    options = ("--layer", "1", "--heads", "2", "0", "--length", "7")
    run(script, tmp_path, f"mine={presets[0] / 'diet_abs' / 'preset'}", *options)
    assert [(layers, heads) for _, layers, heads in drawn[:2]] == [([1], [2, 0])] * 2
    backbone = presets[1]["diet_abs"]
    scores = analysis.position_scores(backbone, 7)
    np.testing.assert_allclose(drawn[0][0]["mine"], scores, atol=1e-6)
    segments = analysis.position_and_segment_scores(backbone, [0, 0, 0, 1, 1, 1, 1])
    np.testing.assert_allclose(drawn[1][0]["mine"], segments, atol=1e-6)
    # Figure 7 shows the heads that look ahead and back most.
    distance = analysis.attended_distance(scores, signed=True)[1]
    assert drawn[2][2] == {"mine": [np.argmax(distance), np.argmin(distance)]}


@pytest.mark.any_backend
def test_seed_chooses_the_sequences(script):
    draw_batch = script.common.draw_batch
    tokenizer = models.DietBertTokenizer(VOCABULARY)
    arguments = script.parse_arguments([".", "--length", "13", "--batch-size", "5"])
    batch = draw_batch(tokenizer, arguments)
    assert all(array.shape == (5, 13) for array in batch.values())
    token_ids = batch["token_ids"]
    assert np.all(token_ids[:, 0] == tokenizer.cls_token_id)
    assert np.all(token_ids[:, -1] == tokenizer.sep_token_id)
    assert not np.isin(token_ids[:, 1:-1], [0, 2, 3]).any()
    np.testing.assert_array_equal(draw_batch(tokenizer, arguments)["token_ids"], token_ids)
    arguments.seed = 1
    assert not np.array_equal(draw_batch(tokenizer, arguments)["token_ids"], token_ids)


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--length", "14"], "--length must be from 3 to 13 for diet_abs"),
        (["--length", "2"], "--length must be from 3 to 13"),
        (["--layer", "2"], "--layer must be from 0 to 1 for diet_abs"),
        (["--heads", "0", "3"], "--heads must be from 0 to 2 for diet_abs"),
        (["--batch-size", "99"], "too few for a batch of 99"),
    ],
)
def test_bad_options_are_named(script, presets, tmp_path, options, message):
    monkey = [presets[0] / "diet_abs" / "preset", "--text", str(tmp_path / "short.txt")]
    (tmp_path / "short.txt").write_text(TEXT)
    with pytest.raises(SystemExit, match=message):
        script.main([*map(str, monkey), "--output-dir", str(tmp_path), *options])


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["missing"], "missing is not a preset folder"),
        (["name=missing"], "missing is not a preset folder"),
        (["a=.", "a=.."], "each preset needs its own name. Received: 'a' for .."),
        (["=."], "each preset needs its own name. Received: '' for ."),
        ([".", "--batch-size", "0"], "must be a positive integer. Received: 0"),
    ],
)
def test_bad_command_lines_are_explained(script, capsys, options, message):
    with pytest.raises(SystemExit):
        script.main(options)
    assert message in capsys.readouterr().err


@pytest.mark.any_backend
def test_labels(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("run/abs/preset", "rate=0.1/preset", "rel"):
        (tmp_path / name).mkdir(parents=True)
    labels = script.labelled(["run/abs/preset", "rate=0.1/preset", "rel", "mine=rel"])
    assert {label: Path(path).resolve() for label, path in labels.items()} == {
        "abs": tmp_path / "run/abs/preset",
        "rate=0.1": tmp_path / "rate=0.1/preset",
        "rel": tmp_path / "rel",
        "mine": tmp_path / "rel",
    }


@pytest.mark.any_backend
def test_commands_of_the_docstring_are_accepted(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"inspect_positions\.py (.*)", script.__doc__)
    assert len(commands) == 2
    for command in commands:
        for path in re.findall(r"\S+/preset", command):
            Path(path.split("=")[-1]).mkdir(parents=True)
        script.parse_arguments(command.split())


@pytest.mark.any_backend
def test_help_explains_every_option(script):
    with contextlib.redirect_stdout(io.StringIO()) as output, pytest.raises(SystemExit):
        script.main(["--help"])
    usage, _, details = output.getvalue().partition("\n\n")
    options = set(re.findall(r"--[a-z-]+", usage))
    assert len(options) == 7
    for option in options:
        # The explanation is on the same line or indented on the next line.
        assert re.search(rf"^  {option}\b[^\n]*(?:  |\n {{10,}})\w", details, re.M), option


@pytest.mark.any_backend
def test_presets_by_name(script):
    assert script.parse_arguments([]).presets == {"diet_bert_tiny_en": "diet_bert_tiny_en"}
    presets = script.parse_arguments(["tiny=diet_bert_tiny_en"]).presets
    assert presets == {"tiny": "diet_bert_tiny_en"}
