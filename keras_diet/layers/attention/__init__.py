"""Attention: score terms, the plan that chooses a program, the programs, and three layers."""
