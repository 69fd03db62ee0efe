"""How the weights of Transformer blocks are split over a mesh of devices."""

import keras


def transformer_layout_map(
    device_mesh: keras.distribution.DeviceMesh,
    model_parallel_dim_name: str = "model",
    data_parallel_dim_name: str = "batch",
) -> keras.distribution.LayoutMap:
    """Return how `keras.distribution.ModelParallel` splits the weights over devices.

    Attention projections are split by heads, and feed-forward layers by their inner axis. Each of
    the two then needs one sum over devices in a layer. Token embeddings are split by `hidden_dim`,
    because few vocabularies are divisible by the number of devices. Kernels that are split over the
    model axis are also split over the data axis, along `hidden_dim`, to save memory.

    All other weights are replicated. Positions and segments are small, an embedding that the heads
    share cannot be split by heads, and each device reads the part of its heads from its copy.

    `num_heads`, `hidden_dim` and `intermediate_dim` must be divisible by the number of devices
    along the model axis. `hidden_dim` must be divisible by the number of devices along the data
    axis. A batch that they do not divide is computed by each device.

    Args:
        device_mesh: A `keras.distribution.DeviceMesh` with both axes.
        model_parallel_dim_name: str. Axis of the mesh that splits a layer. Defaults to `"model"`.
        data_parallel_dim_name: str. Axis of the mesh that splits the batch. Defaults to `"batch"`.

    Returns:
        A `keras.distribution.LayoutMap` for backbones and tasks with any encoding.

    Example:

    ```python
    # On a machine with eight devices, use `keras.distribution.list_devices()`.
    devices = [f"cpu:{i}" for i in range(8)]
    mesh = keras.distribution.DeviceMesh((2, 4), ("batch", "model"), devices)
    layout_map = keras_diet.models.DietTransformerBackbone.get_layout_map(mesh)
    ```
    """
    model_axis, data_axis = model_parallel_dim_name, data_parallel_dim_name
    block = ".*transformer_layer_[0-9]+"
    attention, feedforward = f"{block}/(self|cross)_attention", f"{block}/feedforward"
    layouts = {
        # (vocabulary_size, hidden_dim)
        ".*token_embedding/embeddings": (None, model_axis),
        # (hidden_dim, num_heads, head_dim) and (num_heads, head_dim)
        f"{attention}/(query|key|value|position)/kernel": (data_axis, model_axis, None),
        f"{attention}/(query|key|value)/bias": (model_axis, None),
        # (num_heads, head_dim, hidden_dim)
        f"{attention}/attention_output/kernel": (model_axis, None, data_axis),
        # (hidden_dim, intermediate_dim) and (intermediate_dim,)
        f"{feedforward}_(intermediate|gate)_dense/kernel": (data_axis, model_axis),
        f"{feedforward}_(intermediate|gate)_dense/bias": (model_axis,),
        # (intermediate_dim, hidden_dim)
        f"{feedforward}_output_dense/kernel": (model_axis, data_axis),
        # (hidden_dim, hidden_dim) and (hidden_dim,), of BERT only
        ".*pooled_dense/kernel": (data_axis, model_axis),
        ".*pooled_dense/bias": (model_axis,),
    }
    layout_map = keras.distribution.LayoutMap(device_mesh)
    for path, axes in layouts.items():
        layout_map[path] = axes
    return layout_map
