"""Change GitHub: the only door, opened once (house.md "Rooms")."""
