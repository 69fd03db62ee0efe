"""Experiments: those of the paper, and studies. README.md lists their commands."""
