"""`/{phone-number-id}/block_users`: block, unblock and list users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Response

from tidings.wire import phone_numbers
from tidings.wire.cloud.codes import BLOCKS_FAILED, PARAMETER_INVALID, find_code
from webapp.api.cloud import errors, lists, responses
from webapp.api.cloud.block_list import BlockList, RefusedBlock
from webapp.api.cloud.calls import CloudCall, text_of
from webapp.api.cloud.errors import GraphError

MAX_USERS = 1_000  # users in one call
_PRODUCT = {"messaging_product": "whatsapp"}


class PartialFailure(GraphError):
    """Error of a call that failed for some users: the response has the result of each."""

    def __init__(self, result: Mapping[str, Any], word: str) -> None:
        title = find_code(BLOCKS_FAILED).title
        super().__init__(
            f"(#{BLOCKS_FAILED}) {title}",
            code=BLOCKS_FAILED,
            details=f"Failed to {word} some users, see the block_users response list for details",
        )
        self._result = result

    def body(self, trace: str) -> dict[str, Any]:
        return {**_PRODUCT, "block_users": self._result, **super().body(trace)}


async def block(call: CloudCall) -> Response:
    inputs = await _users(call)
    users = _wa_ids(inputs)
    refused = await call.find(BlockList).block(call.caller, list(dict.fromkeys(filter(None, users))))
    return _respond(call, inputs, users, refused, "block")


async def unblock(call: CloudCall) -> Response:
    inputs = await _users(call)
    users = _wa_ids(inputs)
    await call.find(BlockList).unblock(call.caller, list(dict.fromkeys(filter(None, users))))
    return _respond(call, inputs, users, {}, "unblock")


async def list_all(call: CloudCall) -> Response:
    page, blocked = lists.requested_page(call), call.find(BlockList)
    if page.before is not None:
        found = await blocked.list_before(call.caller, page.before, page.limit + 1)
        has_previous, has_next = len(found) > page.limit, True
        found = found[-page.limit :]
    else:
        found = await blocked.list_after(call.caller, page.after or "", page.limit + 1)
        has_previous, has_next = page.after is not None, len(found) > page.limit
        found = found[: page.limit]
    entries = [{**_PRODUCT, "wa_id": user} for user in found]
    return call.respond(
        lists.paged(entries, found, call, has_previous=has_previous, has_next=has_next), kind=responses.MESSAGING
    )


async def _users(call: CloudCall) -> Sequence[str]:
    """Return the users that the call names, as they are written. Raises `GraphError`."""
    parameters = await call.parameters()
    if text_of(parameters, "messaging_product").lower() != "whatsapp":
        raise errors.missing("messaging_product")
    given = parameters.get("block_users")
    if given is None:
        raise errors.missing("block_users")
    if not isinstance(given, list) or not 0 < len(given) <= MAX_USERS:
        raise errors.invalid(f"block_users: should be a list of 1 to {MAX_USERS} users")
    found = [text_of(entry, "user") if isinstance(entry, dict) else "" for entry in given]
    if not all(found):
        raise errors.invalid(f"block_users[{found.index('')}].user: should be a phone number")
    return found


def _wa_ids(inputs: Sequence[str]) -> Sequence[str]:
    """Return the wa_id of each input; empty for one that is no number."""
    return [phone_numbers.normalise(text) or "" for text in inputs]


def _respond(
    call: CloudCall, inputs: Sequence[str], users: Sequence[str], refused: Mapping[str, RefusedBlock], word: str
) -> Response:
    """Return the result of each user. Raises `PartialFailure` when the call failed for some."""
    done, failed = [], []
    for text, user in zip(inputs, users, strict=True):
        problem = RefusedBlock(PARAMETER_INVALID, "user: is not a phone number") if not user else refused.get(user)
        if problem is None:
            done.append({"input": text, "wa_id": user})
        else:
            failed.append({"input": text, "errors": [_describe(problem)]})
    result: dict[str, Any] = {"added_users" if word == "block" else "removed_users": done}
    if failed:
        raise PartialFailure({**result, "failed_users": failed}, word)
    return call.respond({**_PRODUCT, "block_users": result}, kind=responses.MESSAGING)


def _describe(problem: RefusedBlock) -> Mapping[str, Any]:
    message = f"(#{problem.code}) {find_code(problem.code).title}"
    return {"message": message, "code": problem.code, "error_data": {"details": problem.details}}
