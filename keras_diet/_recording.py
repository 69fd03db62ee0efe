"""Inference on PyTorch as recorded graphs, which run without the calls of Keras's layers."""

import collections
import functools
import threading
from collections.abc import Callable
from typing import Any

import optree

from keras_diet import _backend, _graph

# Number of signatures that are kept for a function. A graph holds operations and small constants,
# and refers to the weights.
MAX_GRAPHS = 16
# PyTorch's recorder changes the modules of PyTorch while it runs, so one thread records at a time.
_lock = threading.Lock()


class RecordedFunction:
    """A function of tensors that PyTorch runs as recorded graphs.

    The second time that tensors of the same shapes and dtypes come, the operations are recorded.
    From then on they run alone, with the same results. They read the weights of the model, so new
    values count. As in the compiled functions of the other backends, everything else that the
    function reads keeps the value that it had at the recording.

    The function is called as it is while a program is recorded or compiled around it, and inside of
    `torch.autocast`.

    Args:
        function: Function of nests of tensors that returns a nest of tensors. It draws no random
            numbers, and does not look at the values of tensors. Nobody asks for its gradients.
        donated: Index of an argument whose tensors nobody reads after a call, or `None`. The graph
            may overwrite them.
    """

    def __init__(self, function: Callable[..., Any], donated: int | None = None) -> None:
        self.function, self.donated = function, donated
        # By signature, the last used one at the end. A signature that was seen once has `None`.
        self._graphs: collections.OrderedDict[Any, Any] = collections.OrderedDict()

    def __call__(self, *arguments: Any) -> Any:
        if not _backend.only_runs():
            return self.function(*arguments)
        tensors: list[Any]
        tensors, nest = optree.tree_flatten(arguments)  # type: ignore[arg-type]
        # A graph has views, which need the same strides.
        kinds = (nest, *((each.shape, each.stride(), each.dtype, each.device) for each in tensors))
        with _lock:
            is_new = kinds not in self._graphs
            graph = self._graphs.pop(kinds, None)
            if graph is None and not is_new:
                graph = _graph.record(self.function, arguments, self.donated)
            self._graphs[kinds] = graph
            if len(self._graphs) > MAX_GRAPHS:
                self._graphs.popitem(last=False)
        if graph is None:
            return self.function(*arguments)
        import torch

        run, structure = graph
        with torch.no_grad():
            return optree.tree_unflatten(structure, run(*tensors))


class RecordableFunction:
    """A function of a model that reads its arguments, some tensors and the weights, and no more.

    So a loop that calls it can be recorded together with it.

    Args:
        function: The function.
        tensors: Dictionary of its last arguments, nests of tensors.
        recordings: Dictionary that keeps what was recorded with the function, or `None` if nothing
            is recorded. It lives as long as the compiled function of the model.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        tensors: dict[str, Any],
        recordings: dict[Any, Any] | None,
    ) -> None:
        self.function, self.tensors, self.recordings = function, tensors, recordings

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments, **self.tensors)

    def recorded(
        self, name: Any, caller: Callable[..., Any], donated: int | None = None
    ) -> Callable[..., Any]:
        """Return `caller(this function, *arguments)` as a function of the arguments.

        Args:
            name: Everything that the results of the caller depend on beside its arguments.
            caller: A function that calls the first argument, and else is as in `RecordedFunction`.
            donated: Index of an argument of the caller, as in `RecordedFunction`.
        """
        if self.recordings is None:
            return functools.partial(caller, self)
        function = self.function

        def of_tensors(tensors, *arguments):
            return caller(functools.partial(function, **tensors), *arguments)

        recorded = self.recordings.setdefault(name, RecordedFunction(of_tensors, donated))
        return functools.partial(recorded, self.tensors)
