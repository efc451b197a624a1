"""Reading bytes that others wrote."""

import msgspec

# What a decoder of msgspec raises for them: not the format, not the shape, not UTF-8, nested too deeply.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
