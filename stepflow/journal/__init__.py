"""Remember: event in, line out; lines in, events out (house.md "Rooms")."""
