"""Kernels for a GPU: `build.py` is the page to begin with.

    places       nests, flat, ranges, vector, pack, take, along: a thread for some places, neighbours by wide accesses; recur: recurrences; sort: ranks
    rows         team, row, rows, short_rows, long_rows, columns, column_terms: reductions by the threads of a block or of a warp; turn: transpositions
    stencils     window: runs of places; tile, bring: chains of stencils; convolution: on tensor cores; dots: products of bytes
    products     product: threads that multiply and add; factor, mma, strips, few: tensor cores; stream, turned, pictures: the copy engine
    attention    attention, keys, staged: tiles of queries and keys; flowing, flow, chosen_keys: brought by the copy engine
    numbers      narrow_floats, quotients: shorter ways to the same digits
    rules        check: what holds for every kernel
"""
