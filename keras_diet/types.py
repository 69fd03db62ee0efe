"""Names for the types in annotations.

Keras 3 has one API for the tensors of three backends, and no common class for them.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import keras

Tensor: TypeAlias = Any
"""A tensor or a variable of the backend, a NumPy array, or a `keras.KerasTensor`."""

Integer: TypeAlias = int | Any
"""An integer, or a tensor with one."""

Shape: TypeAlias = tuple[int | None, ...]
"""The shape of a tensor; `None` stands for a size that is not known yet."""

DType: TypeAlias = str | dict[str, Any] | keras.DTypePolicy | None
"""A dtype such as `"float32"`, or a dtype policy, such as `"mixed_bfloat16"`."""

Initializer: TypeAlias = str | dict[str, Any] | keras.initializers.Initializer | None
"""An initializer, its name, or its configuration."""

Activation: TypeAlias = str | dict[str, Any] | Callable[..., Any] | None
"""An activation, its name, or its configuration."""

Columns: TypeAlias = tuple[Any, Any, Any]
"""Inputs, labels and weights with a row for each example. The last two may be `None`."""

Config: TypeAlias = dict[str, Any]
"""What `get_config` returns: the arguments of a constructor by name."""
