"""Evals: two definitions of an agent on the same cases."""
