"""What an agent is read from: its files, parsed with the place of each value, and those of the shipped agents."""
