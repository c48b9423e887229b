"""Runs on a pull request: follow-ups on one of our own, and reviews of anybody's."""
