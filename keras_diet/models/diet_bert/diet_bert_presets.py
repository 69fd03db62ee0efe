"""The presets that come with the package, each in a folder of `presets` with a model card."""

from pathlib import Path

from keras_diet.models.diet_bert.register_preset import register_preset

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
