"""Composition of operators: what `fuse` stands on."""
