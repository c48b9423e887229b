"""What the repository says to whoever works on it: guidance and skills."""
