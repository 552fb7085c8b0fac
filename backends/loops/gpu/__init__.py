"""Kernels for a GPU: `build.py` is the page to begin with."""
