"""One run, put together and driven (house.md "Rooms")."""
