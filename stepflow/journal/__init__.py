"""Remembers what happens: event → line; lines → entries."""
