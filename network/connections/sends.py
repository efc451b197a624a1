"""Validation of the envelopes that devices send."""

from __future__ import annotations

from tidings.e2ee import messages
from tidings.wire import addresses, device

MAX_BODY = 128 * 1024  # Bytes of a body.
MAX_ID = 64  # Characters of an id.
MAX_REFS = 1000  # Ids in `refs`.
# Largest integer that all programs and databases represent exactly.
MAX_NUMBER = 2**53 - 1
_KINDS = frozenset((device.PREKEY, device.MESSAGE, device.DELIVERED, device.READ, device.RETRY, device.GROUP))


def judge(frame: device.Send, identity: bytes | None) -> tuple[str, str]:
    """Return the reason and the detail of a refusal, both empty for a well-formed envelope.

    identity: key that the sender is registered with; `None` when the sender is not logged in on its connection.
    """
    if identity is None:
        return device.INVALID, "`from` is not logged in on this connection"
    if len(frame.body) > MAX_BODY:
        return device.TOO_LARGE, f"`body` has {len(frame.body)} bytes, the limit is {MAX_BODY}"
    # Some databases ignore blanks at the end of an id.
    if not 0 < len(frame.id) <= MAX_ID or " " in frame.id or not (frame.id.isascii() and frame.id.isprintable()):
        return device.INVALID, f"`id` is not 1 to {MAX_ID} printable ASCII characters without blanks"
    if frame.kind not in _KINDS:
        return device.INVALID, f"`kind` is none of {', '.join(sorted(_KINDS))}"
    if frame.ttl < 0:
        return device.INVALID, "`ttl` is negative"
    if not 0 <= frame.epoch <= MAX_NUMBER:
        return device.INVALID, "`epoch` is not from 0 to 2^53 - 1"
    if len(frame.refs) > MAX_REFS or (frame.refs and max(map(len, frame.refs)) > MAX_ID):
        return device.INVALID, f"`refs` has over {MAX_REFS} ids, or one of over {MAX_ID} characters"
    if frame.trace and (len(frame.trace) > MAX_ID or not (frame.trace.isascii() and frame.trace.isprintable())):
        return device.INVALID, f"`trace` is not at most {MAX_ID} printable ASCII characters"
    if frame.group and not addresses.is_group(frame.group):
        return device.INVALID, "`group` is not a group id"
    if frame.kind == device.GROUP:
        return ("", "") if addresses.is_group(frame.to) else (device.NO_SUCH_GROUP, "`to` is not a group id")
    if not addresses.is_number(frame.to):
        return device.NO_SUCH_NUMBER, "`to` is not a number of 7 to 15 digits"
    if frame.kind == device.PREKEY and not _is_own(frame, identity):
        return device.INVALID, "the identity key in `body` is not the one that `from` is registered with"
    return "", ""


def _is_own(frame: device.Send, identity: bytes) -> bool:
    """Return whether this envelope may open a session in its sender's name. An unreadable one opens no session and
    passes.
    """
    claimed = messages.claimed_identity(frame.body)
    return claimed is None or claimed == identity
