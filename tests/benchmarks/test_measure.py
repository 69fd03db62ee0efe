"""The measurements that the benchmarks share."""

import itertools

import pytest

from benchmarks import measure


@pytest.mark.any_backend
def test_functions_alternate():
    calls = []
    functions = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    times = measure.time_in_turn(functions, rounds=20)
    assert {name: len(seconds) for name, seconds in times.items()} == dict.fromkeys("abc", 20)
    rounds = {tuple(calls[i : i + 3]) for i in range(0, 60, 3)}
    assert {"".join(sorted(names)) for names in rounds} == {"abc"}
    # Each function runs after each other function.
    assert {*zip("abcabc", "bcacab", strict=True)} <= {*itertools.pairwise(calls)}


@pytest.mark.any_backend
def test_ratio_is_taken_round_by_round():
    # The machine, and with it both functions, is slower in the second round.
    median, quartiles = measure.ratio([2.0, 30.0, 4.0], [1.0, 10.0, 1.0])
    assert median == 3.0
    assert quartiles == [2.5, 3.5]
