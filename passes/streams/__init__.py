"""What `assign-streams` is made of: the order in which nodes are launched, the fewest chains that hold them all, and a schedule for fewer streams than that."""
