"""Graphs of PyTorch's operations: recorded, made shorter, and run with few calls of Python."""

import math
from collections.abc import Callable
from typing import Any

import optree

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
