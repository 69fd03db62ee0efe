"""Help needs only Python itself, so it does not wait for the import of Keras and a backend."""

import subprocess
import sys
from pathlib import Path

import keras
import pytest

from benchmarks import results
from examples.paper import pretrain_options

pytestmark = pytest.mark.any_backend
ROOT = Path(__file__).parents[3]
SCRIPTS = sorted(
    path
    for folder in ("benchmarks", "examples/paper")
    for path in (ROOT / folder).glob("*.py")
    if "__main__" in path.read_text()
)


def help_of(*command):
    """Return what a command prints where no package is installed."""
    command = (sys.executable, "-S", *command, "--help")
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, f"--help needs a package or fails:\n{result.stderr}"
    return result.stdout


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_help_of_a_script(path):
    printed = help_of("-m", f"{path.parent.relative_to(ROOT)}.{path.stem}".replace("/", "."))
    assert printed.startswith(f"usage: {path.name} [-h]")
    assert "StandIn" not in printed, "a stand-in is shown as a default"


def test_options_that_help_does_not_read():
    module = "examples.paper.pretrain_masked_lm"
    assert "runs/pretrain_masked_lm/BACKEND" in " ".join(help_of("-m", module).split())
    # Options before --help are checked against stand-ins, which know every encoding.
    assert help_of("-m", module, "--position-encoding", "t5").startswith("usage: ")


def test_options_after_the_imports(capsys):
    backend = keras.config.backend()
    options = pretrain_options.parse_arguments(["--position-encoding", "t5", "alibi"])
    assert options.position_encoding == ["t5", "alibi"]
    assert options.output_dir == Path("runs", "pretrain_masked_lm", backend)
    assert results.parse(results.make_parser("A"), []).name == results.BACKENDS[backend]
    with pytest.raises(SystemExit):
        pretrain_options.parse_arguments(["--position-encoding", "t6"])
    assert "must be one of diet_abs, diet_rel, " in capsys.readouterr().err
