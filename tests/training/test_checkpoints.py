"""Checkpoints, signals and processes of `ExactResume`."""

import os
import signal
from types import SimpleNamespace

import keras
import pytest

from keras_diet import _backend
from keras_diet.training import ExactResume
from keras_diet.training.checkpoint import CheckpointFolder, values_of
from keras_diet.training.trainers import Processes
from tests.training.resumed import (
    EPOCHS,
    STEPS,
    assert_same,
    before,
    data_of,
    make_model,
    result,
    steps_of,
    train,
)
from tests.training.test_exact_resume import make_two_optimizers

pytestmark = pytest.mark.any_backend


def newest(folder):
    return max(folder.glob("step_*.npz"))


# === Saving ===


def test_the_number_of_checkpoints(tmp_path):
    ExactResume(tmp_path, 2, keep=3).fit(make_model(), **data_of("arrays"), verbose=0)
    assert steps_of(tmp_path) == [8, 10, 11]


def test_processes_share_the_values_of_all_optimizers():
    """A checkpoint has them once, and not for each process."""
    model = make_two_optimizers()
    model.optimizer.build(model.trainable_variables[:-2])
    number = sum(len(each.variables) for each in (model.optimizer, model.optimizer_of_last))
    shared, own = values_of(model)
    assert len(shared) == len(model.trainable_variables) + number
    assert not set(shared) & set(own)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def change_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [truncate, change_a_byte])
def test_a_damaged_checkpoint_is_skipped(tmp_path, uninterrupted, damage):
    assert train(tmp_path, 8) is None
    damage(newest(tmp_path))
    with pytest.warns(UserWarning, match=r"step_000000000006.npz is damaged and is skipped"):
        found = train(tmp_path)
    assert_same(result(*found), uninterrupted)


@pytest.mark.parametrize(
    ("crash_after", "save_every", "kept"),
    [
        # The next checkpoint has the name of the damaged one, and only its age deletes it.
        (4, 3, [6, 9]),
        # The damaged one has a higher number than the next checkpoint.
        (2, 7, [6, 7]),
    ],
)
def test_a_damaged_checkpoint_gives_way_to_good_ones(tmp_path, crash_after, save_every, kept):
    assert train(tmp_path, 10) is None
    assert steps_of(tmp_path) == [6, 9]
    newest(tmp_path).write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"):
        assert train(tmp_path, crash_after, save_every=save_every) is None
    assert steps_of(tmp_path) == kept


def test_only_damaged_checkpoints_are_refused(tmp_path):
    assert train(tmp_path, 8) is None
    for path in tmp_path.glob("step_*.npz"):
        path.write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="is damaged"),
        pytest.raises(ValueError, match=r"no checkpoint that can be read.*2 damaged files"),
    ):
        train(tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's device that is full")
def test_a_full_disk_keeps_the_last_checkpoint(tmp_path, uninterrupted):
    fill = before(4, lambda: (tmp_path / "unfinished").symlink_to("/dev/full"))
    with pytest.warns(UserWarning, match=r"could not save step 6 .*No space left.*continues"):
        assert train(tmp_path, callbacks=[fill], crash_after=8) is None
    assert [path.name for path in tmp_path.iterdir()] == ["step_000000000003.npz"]
    assert_same(result(*train(tmp_path)), uninterrupted)


# === SIGTERM ===


def terminate():
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("step", [4, STEPS - 1])
def test_sigterm_saves_and_stops(tmp_path, uninterrupted, step):
    previous = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as error:
        train(tmp_path, callbacks=[before(step, terminate)])
    assert error.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == previous
    assert steps_of(tmp_path)[-1] == step + 1
    assert_same(result(*train(tmp_path)), uninterrupted)


def test_sigterm_after_the_last_step_stops_too(tmp_path, uninterrupted, monkeypatch):
    """The signal comes when the last epoch is saved, before the end of the training is."""
    save = CheckpointFolder.write

    def write(self, step, states, arrays):
        if step == EPOCHS * STEPS and not states[0]["finished_epochs"]:
            terminate()
        save(self, step, states, arrays)

    monkeypatch.setattr(CheckpointFolder, "write", write)
    with pytest.raises(SystemExit):
        train(tmp_path, save_every=1)
    monkeypatch.undo()
    with pytest.warns(UserWarning, match="is not trained again"):
        found = train(tmp_path, save_every=1)
    assert_same(result(*found), uninterrupted)


def test_a_second_sigterm_and_one_after_an_error_are_handled_as_before(tmp_path):
    received = []
    previous = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))

    def terminate_twice():
        terminate()
        assert not received
        terminate()
        assert received == [signal.SIGTERM]

    try:
        assert train(tmp_path, 4) is None
        terminate()
        assert received.pop() == signal.SIGTERM
        with pytest.raises(SystemExit):
            train(tmp_path, callbacks=[before(1, terminate_twice)])
    finally:
        signal.signal(signal.SIGTERM, previous)


# === Processes and devices ===


def test_other_devices_are_refused(tmp_path, monkeypatch):
    assert train(tmp_path, 4) is None
    monkeypatch.setattr(_backend, "platform", lambda: "tpu")
    monkeypatch.setattr(
        Processes, "devices", property(lambda _: "2", lambda *_: None), raising=False
    )
    for devices in (r"device=tpu \(the checkpoint has cpu\)", r"devices=2 \(.* has one\)"):
        with pytest.raises(ValueError, match=devices):
            train(tmp_path)


def test_processes_with_other_checkpoints_are_refused(tmp_path, monkeypatch):
    assert train(tmp_path, 4) is None
    monkeypatch.setattr(Processes, "all", lambda self, value: [value, 6])
    with pytest.raises(ValueError, match=r"same files in all processes.*steps \[3, 6\]"):
        train(tmp_path)


def test_several_processes_of_tensorflow_are_refused(monkeypatch):
    monkeypatch.setattr(keras.config, "backend", lambda: "tensorflow")

    def model(*jobs):
        resolver = SimpleNamespace(cluster_spec=lambda: SimpleNamespace(jobs=list(jobs)))
        strategy = SimpleNamespace(num_replicas_in_sync=2, cluster_resolver=resolver)
        return SimpleNamespace(distribute_strategy=strategy)

    assert Processes(model()).devices == "2 replicas"
    with pytest.raises(ValueError, match="several processes of tensorflow"):
        Processes(model("worker"))
