"""What `verify-plan` is made of. It reads the text of a plan alone, and shares no code with the passes that write plans."""
