"""The nouns of the method: frozen data, no behavior that touches anything."""
