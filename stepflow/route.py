"""Where does a decision lead: `Decision` in, `Move` out (house.md "Rooms")."""
