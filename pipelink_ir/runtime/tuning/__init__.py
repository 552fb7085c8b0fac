"""`--tune`: schedules that are measured. `files.py` says where they are kept, `candidates.py` what is tried, `single.py` runs one operator alone, `search.py`
does all of it in order, `turns.py` times and decides."""
