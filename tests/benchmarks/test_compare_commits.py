"""The comparison of two checkouts."""

import random

import pytest

from benchmarks import compare_commits

pytestmark = pytest.mark.any_backend


class Steps:
    """A worker whose steps take the given seconds, one after the other."""

    def __init__(self, seconds):
        self.seconds, self.commands = iter(seconds), []

    def ask(self, command, row, size, length):
        self.commands.append((command, row, size, length))
        is_timed = command == "step" and self.commands.count(self.commands[-1]) > 1
        return next(self.seconds) if is_timed else 99.0


def test_workers_take_the_same_steps_and_first_steps_do_not_count():
    random.seed(0)
    workers = {"this": Steps([3.0, 1.0, 2.0]), "other": Steps([5.0, 4.0, 6.0])}
    seconds = compare_commits.compare(workers, ["input"], "tiny", 7, rounds=3)
    assert seconds == {"input": {"this": [3.0, 1.0, 2.0], "other": [5.0, 4.0, 6.0]}}
    for worker in workers.values():
        assert worker.commands[0] == ("make", "input", "tiny", 7)
        assert worker.commands[1:-1] == [("step", "input", "tiny", 7)] * 4
        assert worker.commands[-1][0] == "forget"


def test_ratios_are_medians_of_rounds():
    # The ratio of the medians would be 0.5.
    assert compare_commits.ratio([1.0, 6.0, 2.0], [4.0, 4.0, 1.0]) == 1.5
