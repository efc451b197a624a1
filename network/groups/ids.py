"""What the id of a group looks like: the number of its creator, a hyphen, the Unix second in which it was made."""

import re

_FORM = re.compile(r"[0-9]{7,15}-[0-9]{1,12}", re.ASCII)


def is_group(text: str) -> bool:
    """Might a group have this id?"""
    return _FORM.fullmatch(text) is not None
