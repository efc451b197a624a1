"""What a telephone number looks like on the network: E.164 without the `+`."""

MIN_DIGITS = 7
MAX_DIGITS = 15


def is_number(text: str) -> bool:
    """7 to 15 ASCII digits."""
    return MIN_DIGITS <= len(text) <= MAX_DIGITS and text.isascii() and text.isdigit()
