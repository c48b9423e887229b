"""The files of an agent, read safely and parsed strictly; nothing here knows what they mean."""
