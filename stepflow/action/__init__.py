"""The action's door: environ and event in, exit code out (house.md "Rooms")."""
