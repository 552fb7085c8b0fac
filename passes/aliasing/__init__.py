"""Where edges lie: what may share memory, what is written into the memory of another edge, and what the text of a plan says of it."""
