"""Inference on PyTorch as recorded graphs, which run without the calls of Keras's layers."""

import collections
import threading
import weakref
from collections.abc import Callable
from typing import Any

import keras
import optree

from keras_diet import _backend, _graph
from keras_diet._compat import flatten_layers

# Number of signatures that are kept for a model. A graph holds operations and small constants, and
# refers to the weights.
MAX_GRAPHS = 16
_PACKAGES = {"keras", "keras_hub", "keras_diet"}
# For each model, where its weights are in memory, and its graphs by signature. The last used one is
# at the end. A signature that was seen once has `None`.
_graphs: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
# PyTorch's recorder changes the modules of PyTorch while it runs, so one thread records at a time.
_lock = threading.Lock()


class RecordedFunction:
    """A function of tensors that PyTorch runs as a recorded graph.

    The second time that tensors of the same shapes and dtypes come, in this or another object with
    the same model and name, the operations are recorded. From then on they run alone, with the
    same results. They read the weights of the model, so new values count. A model is recorded
    again after `compile`, and if its weights are other tensors, as after LoRA and quantization. An
    object serves one `predict` or `generate`, in which no weight is replaced.

    Other backends call the function. So does PyTorch if a gradient may be asked for, inside of
    `torch.autocast`, in a model that is compiled with `run_eagerly=True`, and in one with hooks or
    with layers from other packages, whose calls may read what changes.

    Args:
        model: The model whose weights the function reads.
        name: Name of the function, with everything that its results depend on beside its
            arguments and the model.
        function: Function of nests of tensors that returns a nest of tensors. It reads nothing but
            its arguments and the weights of the model, draws no random numbers, and does not look
            at the values of tensors.
        donated: Index of an argument whose tensors nobody reads after a call, or `None`. The graph
            may overwrite them.
    """

    def __init__(
        self, model: Any, name: Any, function: Callable[..., Any], donated: int | None = None
    ) -> None:
        self.model, self.name, self.function, self.donated = model, name, function, donated
        self.records = keras.backend.backend() == "torch" and _may_record(model)
        self.graphs: dict[Any, Any] = {}

    def __call__(self, *arguments: Any) -> Any:
        if not self.records:
            return self.function(*arguments)
        tensors: list[Any]
        tensors, nest = optree.tree_flatten(arguments)  # type: ignore[arg-type]
        # A graph has views, which need the same strides.
        kinds = (nest, *((each.shape, each.stride(), each.dtype, each.device) for each in tensors))
        graph = self.graphs.get(kinds) or self._find(kinds, arguments)
        if graph is None:
            return self.function(*arguments)
        run, structure = graph
        return optree.tree_unflatten(structure, run(*tensors))

    def _find(self, kinds, arguments):
        """Return the graph and the structure of its results, or `None` the first time."""
        signature = (self.name, kinds)
        weights = [variable.value.data_ptr() for variable in self.model.variables]
        with _lock:
            known, graphs = _graphs.get(self.model, (None, None))
            if known != weights:
                graphs = collections.OrderedDict()
                _graphs[self.model] = weights, graphs
            is_new = signature not in graphs
            graph = graphs.pop(signature, None)
            if graph is None and not is_new:
                graph = _graph.record(self.function, arguments, self.donated)
            graphs[signature] = graph
            if len(graphs) > MAX_GRAPHS:
                graphs.popitem(last=False)
        if graph is not None:
            self.graphs[kinds] = graph
        return graph


def forget_graphs(model: Any) -> None:
    """Record the functions of a model again. Graphs keep the weights that they refer to."""
    with _lock:
        _graphs.pop(model, None)


def _may_record(model):
    if model.run_eagerly or _backend.records_gradients() or not _backend.only_runs():
        return False
    layers = flatten_layers(model)
    packages = {kind.__module__.partition(".")[0] for kind in set(map(type, layers))}
    return packages <= _PACKAGES and not any(map(_backend.has_hooks, layers))
