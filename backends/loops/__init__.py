"""Operators as loops over buffers, for processors and GPUs. `build.py` and `gpu/build.py` are the pages to begin with: they make programs of operators.

    form         form: statements, kernels and the rules for them; form_expr, form_tiles, form_strip, form_window, form_stream, form_own, form_attend,
                 form_words: expressions, and statements about tensor cores; contents: what a statement is made of; check, own_check: the rules proven; print
    values       emit: names and places of values; lower: expressions; reads, borders: reads; reduce, rank: reductions; fold, powers, expand: functions
    loops        nests, rows, split: definitions; recur: recurrences; tidy: the last look; build: all of a program
    GPUs         `gpu/`: a module for each kind of kernel
"""
