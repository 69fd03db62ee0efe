"""Names for presets."""

import os

from keras_hub.models import Backbone

from keras_diet import _compat

REMOTE = ("hf://", "kaggle://", "modelscope://", "gs://")


def register_named_preset(
    backbone_cls: type[Backbone],
    name: str,
    address: str | os.PathLike[str],
    description: str = "",
    overwrite: bool = False,
) -> None:
    """Give a preset of a family a name that every `from_preset` accepts as its address.

    Args:
        backbone_cls: The backbone class of the family. Its `presets` list the name.
        name: str. The new name.
        address: A folder, or an address that starts with one of `REMOTE`.
        description: str. A description for `presets`. Defaults to `""`.
        overwrite: bool. Whether a name that was registered before may get another address.
            Defaults to `False`.

    Raises:
        ValueError: If the name is taken or could be an address, or if the folder does not hold a
            preset.
    """
    if not isinstance(name, str) or not name or "/" in name or os.sep in name:
        raise ValueError(
            f"`name` must be a name without slashes. Received: name={name!r}. Pass a name such as "
            "'my_preset'."
        )
    address = _checked_address(os.fspath(address))
    taken = _compat.BUILTIN_PRESETS.get(name)
    is_ours = name in backbone_cls.presets
    if taken is not None and taken["kaggle_handle"] != address and not (overwrite and is_ours):
        raise ValueError(
            "`name` must be new. A name that you registered before needs `overwrite=True`. "
            f"Received: name={name!r}, which is {taken['kaggle_handle']}, overwrite={overwrite}"
        )
    preset = {"metadata": {"description": description}, "kaggle_handle": address}
    _compat.register_presets({name: preset}, backbone_cls)


def _checked_address(address: str) -> str:
    if address.startswith(REMOTE):
        return address
    # An absolute path is also found from other working directories.
    address = os.path.abspath(address)
    if not os.path.exists(os.path.join(address, "config.json")):
        raise ValueError(
            "`address` must be the folder of a preset with a config.json, or start with one of "
            f"{', '.join(REMOTE)}. Received: address={address!r}"
        )
    return address
