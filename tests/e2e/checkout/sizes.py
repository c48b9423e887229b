"""Sizes as people write them."""

UNITS = {"k": 1024, "m": 1024**2}


def parse_size(text: str) -> int:
    """Give the bytes of a size such as `12k`."""
    return UNITS.get(text[-1], 1) * text[:-1]
