"""Named crash points, at which tests kill the process to prove that nothing is lost.

`TIDINGS_CRASH_AT=name` kills the process the first time it reaches the point, `name:5` the fifth time, and
`name@15550110000` the first time it does so for this phone number or group. When the variable is unset, `reach` costs
one comparison with `None`.
"""

from __future__ import annotations

import os
import signal

AFTER_COMMIT_BEFORE_REPLY = "after-commit-before-reply"
AFTER_SEND_BEFORE_MARK = "after-send-before-mark"
AFTER_DEVICE_ACK_BEFORE_ROW = "after-device-ack-before-row"
AFTER_ROW_BEFORE_NETWORK_ACK = "after-row-before-network-ack"
AFTER_200_BEFORE_MARK = "after-200-before-mark"
AFTER_STORE_BEFORE_ACCEPTED = "after-store-before-accepted"
AFTER_SEAL_BEFORE_COMMIT = "after-seal-before-commit"
AFTER_FILE_BEFORE_ROW = "after-file-before-row"
AFTER_REGISTRATION_BEFORE_COMMIT = "after-registration-before-commit"
AFTER_KEYS_BEFORE_UPLOAD = "after-keys-before-upload"
AFTER_NEW_KEY_BEFORE_USE = "after-new-key-before-use"
AFTER_REWRAPPED_ROW = "after-rewrapped-row"
AFTER_SHARDS_TAKEN = "after-shards-taken"
AFTER_MOVED_PAGE = "after-moved-page"
AFTER_NEW_LAYOUT = "after-new-layout"
AFTER_SETTLED_PAGE = "after-settled-page"
ITEM_IN_PROGRESS = "item-in-progress"

ALL = tuple(value for name, value in list(globals().items()) if name.isupper())

_armed: str | None = None
_passes_left = 0
# Phone number or group for which the point is armed; empty for every one.
_of = ""


def arm(spec: str | None) -> None:
    """Arm one point from `name`, `name:count` or `name@number`; `None` or empty disarms.

    Raises `ValueError` for an unknown name.
    """
    global _armed, _passes_left, _of
    if not spec:
        _armed = None
        return
    point, _, of = spec.partition("@")
    name, _, count = point.partition(":")
    if name not in ALL:
        raise ValueError(f"no crash point {name!r}; known: {', '.join(ALL)}")
    _armed, _passes_left, _of = name, int(count or 1), of


def reach(name: str, of: str = "") -> None:
    """Kill this process, as by `kill -9`, if the point is armed and this is the pass on which it is to die.

    of: phone number or group that the point concerns; empty for none
    """
    global _passes_left
    if _armed is None or _armed != name or (_of and _of != of):
        return
    _passes_left -= 1
    if _passes_left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
