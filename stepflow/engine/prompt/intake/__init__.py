"""Sanitize text from outside: a model sees only what GitHub's page shows to people."""
