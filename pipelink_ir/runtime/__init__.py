"""From a program and arrays to results: `compile.py`, `bind.py` and what they take and give, arrays of any library, files, images, project files."""
