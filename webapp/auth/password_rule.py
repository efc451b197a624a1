"""Rule for new passwords."""

from __future__ import annotations

import string

MIN_LENGTH, MAX_LENGTH = 8, 64


def weakness(password: str) -> str | None:
    """Return the rule that a new password breaks; `None` when it is acceptable."""
    missing = [
        what
        for what, is_one in (
            ("digit", string.digits.__contains__),
            ("upper-case letter", str.isupper),
            ("lower-case letter", str.islower),
            ("punctuation character", string.punctuation.__contains__),
        )
        if not any(is_one(character) for character in password)
    ]
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        return f"should have {MIN_LENGTH} to {MAX_LENGTH} characters"
    return f"should have at least one {', one '.join(missing)}" if missing else None
