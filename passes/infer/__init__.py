"""Inference of one operator and of one call: types, definitions, boxes, bounds. The pass itself is `passes/infer_types.py`."""
