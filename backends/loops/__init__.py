"""Operators as loops over buffers, for processors and GPUs. `form.py` is the form, `lower.py` makes it of an operator, `gpu/` makes the kernels for GPUs."""
