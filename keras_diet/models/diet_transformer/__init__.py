"""The encoder-decoder family, for translation."""
