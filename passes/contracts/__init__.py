"""The checks behind `check-contracts`: what a declaration says of itself, what an edge promises and is asked for, what a target needs."""
