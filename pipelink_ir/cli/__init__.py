"""The command `pipelinkc`: `main.py` finds the subcommand, each of which has a module."""
