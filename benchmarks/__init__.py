"""Side-by-side timings, each of them one command: `python -m benchmarks.<name>`."""
