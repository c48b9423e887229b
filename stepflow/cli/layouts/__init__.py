"""Which files tell how a project is checked and installed, and what they tell."""
