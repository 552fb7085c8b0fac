"""Loop-level form to CUDA C++ to kernels. `emit.py` writes the text, `nvrtc.py` compiles it, `executable.py` runs a plan; `emulate/` plays a GPU."""
