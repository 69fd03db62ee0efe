"""Inference on PyTorch as recorded graphs, which run without the calls of Keras's layers."""

import collections
import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import optree

from keras_diet import _backend

# === Functions that are recorded ===

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
                graph = record(self.function, arguments, self.donated)
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


# === Graphs: recorded, made shorter, and run with few calls of Python ===

# Number of entries up to which a constant is kept with a graph. Larger ones are computed each time:
# a bias without weights has `num_heads * T * T` in each layer.
MAX_CONSTANT_SIZE = 2**16
# Views that keep the order of the entries. One `view` is enough for several of them.
_RESHAPING = {
    *("aten.view.default", "aten._unsafe_view.default"),
    *("aten.unsqueeze.default", "aten.squeeze.dim"),
}


def record(
    function: Callable[..., Any], arguments: Any, donated: int | None = None
) -> tuple[Callable[..., Any], Any]:
    """Record the operations of a function of tensors. Only small constants are computed.

    While the recorder computes, it keeps all results to its end. So the function gets tensors
    without values.

    Args:
        function: The function.
        arguments: Sequence of nests of tensors.
        donated: Index of the argument that nobody reads after a call, or `None`. Updates of its
            tensors need no copy then.

    Returns:
        A function that takes the tensors one by one and returns a list, and the `optree` structure
        of the results of `function`.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    tensors, structure = optree.tree_flatten(arguments)
    structures = []

    def of_tensors(*tensors):
        outputs = function(*optree.tree_unflatten(structure, tensors))
        results, structure_of_results = optree.tree_flatten(outputs)
        structures.append(structure_of_results)
        return results

    module = make_fx(of_tensors, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)
    _join_views(module)
    _fold_constants(module)
    module.graph.eliminate_dead_code()
    if donated is not None:
        first = optree.tree_structure(arguments[:donated]).num_leaves
        count = optree.tree_structure(arguments[donated]).num_leaves
        _update_in_place(module, slice(first, first + count))
    module.recompile()
    return module.forward, structures[0]


def _is_view(node):
    # Others are items of tuples.
    return getattr(node.target, "is_view", True)


def _written(graph):
    """Return the nodes whose memory a later operation or the caller changes."""
    written = set(graph.output_node().all_input_nodes)
    for node in reversed(graph.nodes):
        if node.op != "call_function":
            continue
        if node.is_impure() or (node in written and _is_view(node)):
            written.update(node.all_input_nodes)
    return written


def _fold_constants(module):
    """Compute now what depends on no argument. Of weights these are views, which see new values."""
    from torch.fx.node import map_arg
    from torch.nn import Parameter

    graph = module.graph
    written = _written(graph)
    constants: dict[Any, Any] = {}
    of_weights = set()
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if node.op == "get_attr":
            constants[node] = getattr(module, node.target)
            if isinstance(constants[node], Parameter):
                of_weights.add(node)
        elif node.op == "call_function" and node not in written and constants.keys() >= set(inputs):
            is_of_weights = not of_weights.isdisjoint(inputs)
            if not _is_view(node) and (is_of_weights or _size(node) > MAX_CONSTANT_SIZE):
                continue
            if is_of_weights:
                of_weights.add(node)
            values = map_arg((node.args, node.kwargs), constants.__getitem__)
            constants[node] = node.target(*values[0], **values[1])
    for number, (node, value) in enumerate(constants.items()):
        if node.op == "call_function" and not constants.keys() >= node.users.keys():
            name = f"_constant{number}"
            module.register_buffer(name, value, persistent=False)
            with graph.inserting_before(node):
                constant = graph.get_attr(name)
            node.replace_all_uses_with(constant)


def _size(node):
    return sum(math.prod(each.shape) for each in optree.tree_leaves(node.meta["val"]))


def _join_views(module):
    """Leave out views that change nothing, and join views of views."""
    import torch

    for node in module.graph.nodes:
        if not getattr(node.target, "is_view", False):
            continue
        source = node.args[0]
        if str(node.target) in _RESHAPING:
            while str(source.target) in _RESHAPING:
                source = source.args[0]
            if source is not node.args[0]:
                shape = list(node.meta["val"].shape)
                node.target, node.args = torch.ops.aten.view.default, (source, shape)
        if "val" in source.meta and _layout(node) == _layout(source):
            node.replace_all_uses_with(source)


def _layout(node):
    value = node.meta["val"]
    if not hasattr(value, "stride"):
        return None
    return value.shape, value.stride(), value.storage_offset(), value.dtype


def _update_in_place(module, donated):
    """Update donated tensors in their own memory, if nothing else reads them."""
    import torch

    arguments = [node for node in module.graph.nodes if node.op == "placeholder"][donated]
    for node in module.graph.nodes:
        is_update = node.target is torch.ops.aten.index_copy.default
        if is_update and node.args[0] in arguments and len(node.args[0].users) == 1:
            node.target = torch.ops.aten.index_copy_.default
