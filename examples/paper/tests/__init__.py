"""Tests of the experiments: `make test-paper`."""
