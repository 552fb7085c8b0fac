"""Precision lowering: what policies say, codes of quantised values, what a change costs, and how far its errors reach."""
