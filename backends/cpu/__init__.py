"""Loop-level form to LLVM IR to machine code. `emit.py` writes the text, `jit.py` compiles it, `executable.py` runs a plan."""
