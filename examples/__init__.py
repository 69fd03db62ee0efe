"""Nine lessons, of one file each. `examples.paper` holds the experiments of the paper."""

from benchmarks import quick_help  # noqa: F401
