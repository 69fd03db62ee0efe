"""Names of presets: those that come with the package, each in a folder of `presets`, and others."""

import os
from pathlib import Path

from keras_hub.models import Backbone

from keras_diet._compat import register_presets
from keras_diet.models.diet_bert.diet_bert_backbone import DietBertBackbone

_REMOTE = ("hf://", "kaggle://", "modelscope://", "gs://")
FOLDER = Path(__file__).parent / "presets"
DESCRIPTIONS = {
    "diet_bert_tiny_en": (
        "DIET-ABS with 2 layers of width 192 and 6,000 lowercase tokens, pretrained on English "
        "Wikipedia. For demonstrations and tests."
    ),
}


def register_packaged_presets() -> None:
    """Register the presets under their names."""
    for name, description in DESCRIPTIONS.items():
        register_preset(name, FOLDER / name, description)


def register_preset(
    name: str, address: str | os.PathLike[str], description: str = "", overwrite: bool = False
) -> None:
    """Give a preset a name that every `from_preset` accepts as its address.

    The name works with our classes and with the base classes of KerasHub until the process ends.
    `DietBertBackbone.presets` lists it.

    Args:
        name: str. The new name.
        address: A folder, as a `str` or a path, or an address that starts with `"hf://"`,
            `"kaggle://"`, `"modelscope://"` or `"gs://"`.
        description: str. A description for `presets`. Defaults to `""`.
        overwrite: bool. Whether a name that was registered before may get another address. Names
            of KerasHub may not. Defaults to `False`.

    Raises:
        ValueError: If the name is taken.

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
    address = os.fspath(address)
    if not address.startswith(_REMOTE):
        # An absolute path is also found from other working directories.
        address = os.path.abspath(address)
    taken = Backbone.presets.get(name, {}).get("kaggle_handle", address)
    if taken != address and not (overwrite and name in DietBertBackbone.presets):
        raise ValueError(
            "`name` must be new, or your own with `overwrite=True`. Received: "
            f"name={name!r}, which is {taken}, overwrite={overwrite}"
        )
    preset = {"metadata": {"description": description}, "kaggle_handle": address}
    register_presets({name: preset}, DietBertBackbone)
