"""What runs a module: the reference, the CPU, GPUs. `interface.py` is what they have in common, `planning.py` and `memory.py` read plans for all of them."""
