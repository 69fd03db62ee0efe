"""How the weights of a DietBert model are split over a mesh of devices."""

import keras


def diet_bert_layout_map(device_mesh, model_axis, data_axis):
    """Return the layouts of `DietBertBackbone.get_layout_map`."""
    _check_axes(device_mesh, model_axis, data_axis)
    block = ".*transformer_layer_[0-9]+"
    attention, feedforward = f"{block}/self_attention", f"{block}/feedforward"
    layouts = {
        # (vocabulary_size, hidden_dim)
        ".*token_embedding/embeddings": (None, model_axis),
        # (hidden_dim, num_heads, head_dim) and (num_heads, head_dim)
        f"{attention}/(query|key|value)/kernel": (data_axis, model_axis, None),
        f"{attention}/(query|key|value)/bias": (model_axis, None),
        # (num_heads, head_dim, hidden_dim)
        f"{attention}/attention_output/kernel": (model_axis, None, data_axis),
        # (hidden_dim, intermediate_dim) and (intermediate_dim,)
        f"{feedforward}_intermediate_dense/kernel": (data_axis, model_axis),
        f"{feedforward}_intermediate_dense/bias": (model_axis,),
        # (intermediate_dim, hidden_dim)
        f"{feedforward}_output_dense/kernel": (model_axis, data_axis),
        # (hidden_dim, hidden_dim) and (hidden_dim,)
        ".*pooled_dense/kernel": (data_axis, model_axis),
        ".*pooled_dense/bias": (model_axis,),
    }
    layout_map = keras.distribution.LayoutMap(device_mesh)
    for path, axes in layouts.items():
        layout_map[path] = axes
    return layout_map


def _check_axes(device_mesh, model_axis, data_axis):
    if not isinstance(device_mesh, keras.distribution.DeviceMesh):
        raise ValueError(
            "`device_mesh` must be a `keras.distribution.DeviceMesh`. "
            f"Received: device_mesh={device_mesh!r} (of type {type(device_mesh)})"
        )
    names = {"model_parallel_dim_name": model_axis, "data_parallel_dim_name": data_axis}
    for name, axis in names.items():
        if axis not in device_mesh.axis_names:
            raise ValueError(
                f"`{name}` must be an axis of the mesh, one of {device_mesh.axis_names}. "
                f"Received: {name}={axis!r}"
            )
    if model_axis == data_axis:
        raise ValueError(
            "`model_parallel_dim_name` and `data_parallel_dim_name` must be two axes of the mesh. "
            f"Received: {model_axis!r} for both"
        )
