"""CUDA C++ on the processor: emitted kernels and those of users, compiled by the host's compiler and run thread by thread, with every access looked at.

`emulated.cuh` is what a kernel sees, `machine.cpp` plays blocks and threads; `toolchain.py` finds a compiler, `library.py` compiles and launches, `kernels.py`
keeps what is compiled, many kernels at a time, and `executable.py` runs pipelines. It needs no GPU and nothing of CUDA: tests check the numbers of all kernels
with it, and `target="cuda-emulated"` finds races, missing barriers and accesses outside of a buffer in a kernel that a user wrote.
"""
