"""The nouns of the method (house.md "Rooms"): frozen data, no behaviour that touches anything."""
