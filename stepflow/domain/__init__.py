"""The nouns of the method: frozen data, no behaviour that touches anything."""
