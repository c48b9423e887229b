"""The terminal's door: argv in, exit code out (house.md "Rooms")."""
