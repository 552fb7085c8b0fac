"""Values of edges, seen: ranges to quantise with (`pipelinkc calibrate`), and where two ways to run a program differ (`pipelinkc compare`)."""
