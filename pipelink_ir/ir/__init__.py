"""What a program is: its nodes, dtypes, functions and diagnostics, and what can be proven of the integers in it. It imports nothing of the other layers."""
