"""`examples/paper/xtreme_average.py`: the average of a row of the paper's Table 3."""

import pytest

from examples.paper.tests.helpers import fixture_of

pytestmark = pytest.mark.any_backend
script = fixture_of("xtreme_average")
HEAD = "task,metric,model,learning_rate,seeds,median,lowest,highest"


def test_the_average_of_seven_numbers(script, tmp_path, capsys):
    """Devlin et al. in Table 3 of the paper: 55.3. The other model lacks MLQA."""
    xnli, answers = tmp_path / "xnli.csv", tmp_path / "qa.csv"
    rows = [f"{task},accuracy,{model},1,5,{value},0,0" for task, model, value in XNLI]
    xnli.write_text("\n".join([HEAD, *rows]))
    rows = [f"{task},{metric},{model},1,5,{value},0,0" for task, metric, model, value in ANSWERS]
    answers.write_text("\n".join([HEAD, *rows]))
    script.main([str(xnli), str(answers)])
    *_, first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("| input | 67.0 | 66.0 | 49.9 | 56.2 | 41.0 | 59.0 | 47.9 |")
    assert first.endswith(" 55.3 |")
    assert second == "| diet | 60.0 | 50.0 |" + 5 * "  |" + " incomplete |"


XNLI = [("en", "input", 99), ("mean", "input", 67.0), ("mean", "diet", 60)]
ANSWERS = [
    ("xquad de", "f1", "input", 1),
    ("xquad mean", "f1", "input", 66.0),
    ("xquad mean", "exact_match", "input", 49.9),
    ("mlqa mean", "f1", "input", 56.2),
    ("mlqa mean", "exact_match", "input", 41.0),
    ("tydiqa mean", "f1", "input", 59.0),
    ("tydiqa mean", "exact_match", "input", 47.9),
    ("xquad mean", "f1", "diet", 50),
]
