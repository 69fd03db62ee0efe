"""How the weights of a DietBert model are split over a mesh of devices."""

import keras

from keras_diet.models.hub.layout_map import transformer_layout_map


def diet_bert_layout_map(
    device_mesh: keras.distribution.DeviceMesh,
    model_parallel_dim_name: str = "model",
    data_parallel_dim_name: str = "batch",
) -> keras.distribution.LayoutMap:
    """Return how `keras.distribution.ModelParallel` splits the weights over devices.

    Attention projections are split by heads, and feed-forward layers by their inner axis. Each of
    the two then needs one sum over devices in a layer. Token embeddings are split by `hidden_dim`,
    because BERT's vocabulary of 30522 tokens is not divisible by 4. Kernels that are split over the
    model axis are also split over the data axis, along `hidden_dim`, to save memory.

    All other weights are replicated. Positions and segments are small, an embedding that the heads
    share cannot be split by heads, and each device reads the part of its heads from its copy.

    `num_heads`, `hidden_dim` and `intermediate_dim` must be divisible by the number of devices
    along the model axis. `hidden_dim` and the batch size must be divisible by the number of devices
    along the data axis.

    Args:
        device_mesh: A `keras.distribution.DeviceMesh` with both axes.
        model_parallel_dim_name: str. Axis of the mesh that splits a layer. Defaults to `"model"`.
        data_parallel_dim_name: str. Axis of the mesh that splits the batch. Defaults to `"batch"`.

    Returns:
        A `keras.distribution.LayoutMap` for backbones and tasks with any encoding.

    Raises:
        ValueError: If `device_mesh` is not a mesh or has no axis of these names, or if both names
            are the same.

    Example:

    ```python
    # On a machine with eight devices, use `keras.distribution.list_devices()`.
    devices = [f"cpu:{i}" for i in range(8)]
    mesh = keras.distribution.DeviceMesh((2, 4), ("batch", "model"), devices)
    layout_map = keras_diet.models.DietBertBackbone.get_layout_map(mesh)
    ```
    """
    model_axis, data_axis = model_parallel_dim_name, data_parallel_dim_name
    layout_map = transformer_layout_map(device_mesh, model_axis, data_axis)
    # (hidden_dim, hidden_dim) and (hidden_dim,)
    layout_map[".*pooled_dense/kernel"] = (data_axis, model_axis)
    layout_map[".*pooled_dense/bias"] = (model_axis,)
    return layout_map
