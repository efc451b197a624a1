"""Errors of decoding bytes that another process wrote."""

import msgspec

# Raised by a decoder of msgspec for input that is not in the format, not of the type, not UTF-8, or nested too deeply.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
