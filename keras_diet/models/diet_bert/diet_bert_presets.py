"""Presets that are found by name."""

import os

from keras_diet import _keras_hub
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone

# Name -> KerasHub's entry, `{"kaggle_handle": any address, "metadata": {"description": ...}}`.
# None are published yet.
backbone_presets = {}
_keras_hub.register_presets(backbone_presets, DietBertBackbone)

REMOTE = ("hf://", "kaggle://", "modelscope://", "gs://")


def register_preset(name, address, description="", overwrite=False):
    """Give a preset a name, which every `from_preset` then takes for its address.

    The name works with our classes and with KerasHub's base classes, for the rest of the
    process, and is listed by `DietBertBackbone.presets`.

    Args:
        name: str. The new name.
        address: A folder, as a `str` or a path, or an address that starts with `"hf://"`,
            `"kaggle://"`, `"modelscope://"` or `"gs://"`.
        description: str. What the preset is, for `presets`. Defaults to `""`.
        overwrite: bool. Whether a name that was registered before may get another address; names
            of KerasHub may not. Defaults to `False`.

    Raises:
        ValueError: If the name is taken or could be an address, or if the folder holds no
            preset.

    Example:

    ```python
    backbone = keras_diet.models.DietBertBackbone(
        vocabulary_size=9, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16,
    )
    backbone.save_to_preset("folder")
    keras_diet.models.register_preset("diet_bert_example", "folder")
    backbone = keras_hub.models.Backbone.from_preset("diet_bert_example")
    ```
    """
    if not isinstance(name, str) or not name or "/" in name or os.sep in name:
        raise ValueError(f"`name` must be a name without slashes. Received: name={name!r}")
    address = os.fspath(address)
    if not address.startswith(REMOTE):
        # Found from other working directories as well.
        address = os.path.abspath(address)
        if not os.path.exists(os.path.join(address, "config.json")):
            raise ValueError(
                f"`address` must be the folder of a preset, with its config.json, or start with "
                f"one of {', '.join(REMOTE)}. Received: address={address!r}"
            )
    taken = _keras_hub.BUILTIN_PRESETS.get(name)
    is_ours = name in DietBertBackbone.presets
    if taken is not None and taken["kaggle_handle"] != address and not (overwrite and is_ours):
        raise ValueError(
            f"`name` must be new, or registered before and `overwrite=True`. Received: "
            f"name={name!r}, which is {taken['kaggle_handle']}, overwrite={overwrite}"
        )
    preset = {"metadata": {"description": description}, "kaggle_handle": address}
    _keras_hub.register_presets({name: preset}, DietBertBackbone)
