"""Show people: events in, text out (house.md "Rooms")."""
