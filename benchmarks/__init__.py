"""Side-by-side timings. Each of them is one command: `python -m benchmarks.<name>`."""

from benchmarks import quick_help  # noqa: F401
