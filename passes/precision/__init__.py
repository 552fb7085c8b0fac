"""Precision lowering: what policies say, codes of quantised values, what a change costs, and how far its errors reach.

    policies     policy: a clause as values; labels, push: clauses of graphs on their way to operators; clause_text: clauses as options and in project files;
                 demands, limits, own_kernels: what a policy asks for and cannot have
    codes        codes: what they are, and what makes them; products: sums of products in a body; contraction, reading, code_sums, quantised: bodies on codes;
                 sections: their contracts; selecting: operators that only choose among values; moved_codes: codes moved through them
    decisions    survey, plans: what becomes of each node; price, work, machine: what that costs; profit, cut, weighed: what pays; estimate: how far off it is
    nodes        edges: a pipeline written anew; insert: what is put in for codes; floats: other float dtypes
    data         calibrated: ranges and errors that were measured; calibration_file: their file
"""
