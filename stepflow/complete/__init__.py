"""Is it really done: validators in, `Verdict` out (house.md "Rooms")."""
