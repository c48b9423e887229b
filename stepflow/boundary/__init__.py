"""Change GitHub: the only door, opened once."""
