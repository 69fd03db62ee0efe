"""The benchmark of the checks of data."""

import json

import pytest

from benchmarks import input_checks
from keras_diet.models.hub import data_methods, gate


@pytest.mark.any_backend
def test_results(tmp_path, capsys, monkeypatch):
    checked = []

    def count(*data, **options):
        checked.append(data)
        return gate.checked_data(*data, **options)

    monkeypatch.setattr(data_methods, "checked_data", count)
    output = tmp_path / "checks.json"
    input_checks.main(["--texts", "5", "--rounds", "3", "--output", str(output)])
    cells = json.loads(output.read_text())["cells"]
    assert list(cells) == ["predict", "fit"]
    for cell in cells.values():
        seconds = cell["seconds"]
        assert {name: len(times) for name, times in seconds.items()} == {
            "checked": 3,
            "unchecked": 3,
            "keras_hub": 3,
            "checks": 3,
        }
        assert cell["unchecked"]["ratio_to_unchecked"] == 1.0
        share = sorted(seconds["checks"])[1] / sorted(seconds["checked"])[1]
        assert cell["share_of_checks"] == pytest.approx(share)
    # One warm-up and three rounds of both methods.
    assert len(checked) == 8
    printed = capsys.readouterr().out
    assert output.with_suffix(".md").read_text().strip() == printed.strip()
    assert f"{100 * cells['fit']['share_of_checks']:.2f} %" in printed
