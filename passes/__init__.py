"""From a program as written to one with a plan. `manager.py` runs passes, `pipeline.py` says which; each pass is a module with a page at its head."""
