"""Transformer blocks and stacks."""
