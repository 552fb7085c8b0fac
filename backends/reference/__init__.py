"""The reference backend: the oracle of all tests. It interprets definitions with NumPy, in float64 on request.

    frame.py        the grid over which an expression is evaluated at once, and the mask of what is wanted
    interpreter.py  one operator: definitions, reads, reductions, recurrences
    reductions.py   reductions along an axis
    borders.py      indices outside an axis
    executable.py   a pipeline: `load(module, name, float64=…)`
"""
