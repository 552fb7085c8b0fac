"""How operators are run: where each definition lives, what is computed together, and over which threads. Analyses only, nothing here writes loops.

    schedules    asked, wishes: what is written; printed, maps, knobs, blocks: what is decided, as text; tuned, tuned_file, tuned_lookup, identity: what
                 was measured; told: what the ledger says
    definitions  uses, reaches, views, conditions: what is read where; counts, costs, risks, settle: what is known of it; derivation, parts, transpose,
                 permuted, retell: definitions written anew
    processors   place, steps: where locals live, what is computed in one go
    GPUs         kernels: which kind of kernel, the page to begin with; gpu_place, shape, together: places and threads
    rows         rows, long_rows, columns: reductions; turns: transpositions
    stencils     windows, tiles, convolutions; boxes: pictures as factors of products that stream
    products     products: which there are; cuts, tensor_cores, strips, few, streams, coded: how they are computed; library_products, libraries: by whom
    attention    attention_search: which definitions are it; attention: how it is computed; attention_flow: what flows through shared memory
"""
from __future__ import annotations
