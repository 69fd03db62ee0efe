"""Recorded graphs of PyTorch are made shorter, and give the same results."""

import numpy as np
import pytest

from keras_diet import _recording

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.any_backend


def record(function, *arguments, **options):
    """Return the recorded function for the same arguments, and its code."""
    run, structure = _recording.record(function, arguments, **options)
    return run, structure, run.__self__.code


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def test_recording_computes_nothing():
    def function(x):
        # 17.6 TB.
        products = x[:, None] * x
        return products.sum(0)

    _, _, code = record(function, torch.ones(2**21))
    assert "aten.mul." in code


def test_constants_are_folded():
    def function(x):
        places = torch.arange(3.0) * 2.0
        return x.exp() + places, x - places

    run, _, code = record(function, torch.tensor([1.0, 2.0, 3.0]))
    assert "aten.exp." in code
    assert "aten.arange." not in code
    assert "aten.mul." not in code
    first, second = run(torch.zeros(3))
    np.testing.assert_array_equal(first, [1.0, 3.0, 5.0])
    np.testing.assert_array_equal(second, [0.0, -2.0, -4.0])


def test_large_constants_are_not_kept(monkeypatch):
    def function(x):
        places = torch.arange(3.0) * 2.0
        return x + places[:, None] * torch.arange(4.0)

    monkeypatch.setattr(_recording, "MAX_CONSTANT_SIZE", 4)
    run, _, code = record(function, torch.zeros(3, 4))
    # The outer product is computed each time, from constants.
    assert "aten.arange." not in code
    assert code.count("aten.mul.") == 1
    (found,) = run(torch.ones(3, 4))
    np.testing.assert_array_equal(found, 1.0 + np.outer([0.0, 2.0, 4.0], np.arange(4.0)))


def test_new_values_of_weights_count(monkeypatch):
    # Views take no memory, so they may be large.
    monkeypatch.setattr(_recording, "MAX_CONSTANT_SIZE", 4)
    weight = torch.nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    run, _, code = record(lambda x: (x @ weight.t(), x + 2.0 * weight), torch.ones(1, 2))
    # Views are folded, and see new values. Other results do not.
    assert "aten.t.default" not in code
    weight.copy_(torch.tensor([[7.0, 1.0], [3.0, 5.0], [2.0, 2.0]]))
    product, total = run(torch.tensor([[1.0, 10.0]]))
    np.testing.assert_array_equal(product, [[17.0, 53.0, 22.0]])
    np.testing.assert_array_equal(total, [[15.0, 12.0], [7.0, 20.0], [5.0, 14.0]])


@pytest.mark.parametrize("through_view", [False, True])
def test_constants_that_are_written_to_begin_anew(through_view):
    def function(x):
        total = torch.arange(4.0) + 1.0
        part = total.view(2, 2) if through_view else total
        part.add_(x)
        return total, torch.arange(4.0) + 1.0

    x = torch.full((2, 2) if through_view else (4,), 10.0)
    run, _, _ = record(function, x)
    for _ in range(2):
        total, other = run(x)
        np.testing.assert_array_equal(total, [11.0, 12.0, 13.0, 14.0])
        np.testing.assert_array_equal(other, [1.0, 2.0, 3.0, 4.0])


def test_results_may_be_written_to():
    def function(x):
        constant = torch.arange(4.0) + 1.0
        return constant, x + constant, (torch.arange(6.0) * 2.0).view(2, 3)

    run, _, _ = record(function, torch.zeros(4))
    for _ in range(2):
        constant, total, view = run(torch.full((4,), 10.0))
        np.testing.assert_array_equal(constant, [1.0, 2.0, 3.0, 4.0])
        np.testing.assert_array_equal(total, [11.0, 12.0, 13.0, 14.0])
        np.testing.assert_array_equal(view, [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]])
        constant.zero_()
        view.zero_()


def test_views_are_joined():
    def function(x):
        joined = x.view(4, 3).unsqueeze(1).view(2, 6).squeeze(0)
        as_bits = x.view(torch.int32).view(3, 4)
        turned = x.t().unsqueeze(0).transpose(1, 2)
        return joined, as_bits, turned, x.expand(2, 6) * 3.0

    x = torch.arange(12.0).view(2, 6)
    run, _, code = record(function, x)
    other = torch.arange(5.0, 17.0).view(2, 6)
    for found, expected in zip(run(other), function(other), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    # The first is the argument itself, and `expand` changes nothing.
    assert "aten.expand." not in code
    assert code.count("aten.view.default") == 1


@pytest.mark.parametrize("donated", [None, 1])
def test_only_donated_arguments_are_overwritten(donated):
    """Also not a donated one that is read again, and no argument before or after."""

    def function(first, cache, last):
        changed, read = (tensor.index_copy(0, index, part) for tensor in cache)
        others = (tensor.index_copy(0, index, part) for tensor in (*first, last))
        return changed, read - cache[1], *others

    part, index = torch.tensor([[8.0, 9.0]]), torch.tensor([1])
    changed, read, *others = (torch.full((3, 2), value) for value in (1.0, 2.0, 3.0, 4.0, 5.0))
    run, _, _ = record(function, others[:2], (changed, read), others[2], donated=donated)
    outputs = run(*others[:2], changed, read, others[2])
    np.testing.assert_array_equal(outputs[0], [[1, 1], [8, 9], [1, 1]])
    np.testing.assert_array_equal(outputs[1], [[0, 0], [6, 7], [0, 0]])
    for value, output, argument in zip((3, 4, 5), outputs[2:], others, strict=True):
        np.testing.assert_array_equal(output, [[value, value], [8, 9], [value, value]])
        np.testing.assert_array_equal(argument, np.full((3, 2), value))
    np.testing.assert_array_equal(read, np.full((3, 2), 2.0))
    assert (outputs[0] is changed) == (donated == 1)
