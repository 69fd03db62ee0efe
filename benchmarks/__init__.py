"""Side-by-side timings. Each of them is one command: `python -m benchmarks.<name>`."""
