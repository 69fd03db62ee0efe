"""Trained encoders of Hugging Face, read into a `DietBertBackbone` and written from it."""
