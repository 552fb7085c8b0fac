"""The loop-level form on a GPU: as text, as code, and as what runs. `emit.py` is the page to begin with for the first, `executable.py` for the last.

    text         emit: many kernels as one text; emit_stmt, emit_expr, emit_fragments, emit_own: what stands in them; kinds, bounds: how wide an integer is;
                 names, literals, long_lines: how things are spelled; target_facts: what differs between languages; `prelude/`: what kernels call
    code         compile: what operators become; nvrtc: a text compiled
    launches     geometry: turns, width of indices, scratch; loaded: kernels on a device; recipe, order, capture, graphs, cupy_graph: commands and what
                 orders them
    runs         executable: a pipeline; run, lanes, spares, pinned: one call and its memory; launcher: the walk over commands; failures: what goes wrong;
                 timing
    devices      driver: what is asked of one; cupy_driver, opened: who answers
    others'      user_kernel, user_launch: kernels of users; cublaslt, library_call: products by a library
    no device    `emulate/` plays one on the processor
"""
