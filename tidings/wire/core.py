"""The frames between Webapp and Coreapp: one question, one answer, matched by `n`."""

from __future__ import annotations

import msgspec


class Frame(msgspec.Struct, tag_field="t", omit_defaults=True, gc=False):
    """Base of all frames. `n` numbers the questions of one connection, from 1."""

    n: int


# What a Coreapp says that it understands, in its answer to `Hello`: 1 has `Ping`, and `AcceptMessage.repeated`; 2 has
# `CheckContacts.of`; 3 sends `Leaving`.
LINK_VERSION = 3


class Hello(Frame, tag="hello"):
    """First frame of a connection: the installation's link key. Answered by `Done` with `LINK_VERSION`, or a closed
    connection.

    version: the `LINK_VERSION` of the Webapp; 0 for a release that sent none.
    """

    key: str
    version: int = 0


class Ping(Frame, tag="ping"):
    """Is anybody there? Answered by `Done` at once, whatever else the Coreapp is at. For version 1 and later: earlier
    ones close the connection over it."""


class CheckContacts(Frame, tag="check_contacts"):
    """POST /v1/contacts. Answered by `Contacts` or `Refused`.

    of: a number whose shard is to answer, because all of the numbers are of it; the first one when there is none.
    """

    account: str
    inputs: list[str]
    wait: bool = False
    force_check: bool = False
    request_id: str = ""
    of: str = ""


class AcceptMessage(Frame, tag="accept_message"):
    """POST /v1/messages, validated. Answered by `Accepted` or `Refused`.

    to:              digits, no `+`; the id of a group when `recipient_type` is `group`.
    kind:            the message's type, `text` say.
    content:         the JSON text that is encrypted for the recipient: `{"type":"text","text":{"body":…}}`.
    has_media:       the content holds media objects, which are to be replaced by pointers that a recipient can follow.
    idempotency_key: the caller's; with one, the same `fingerprint` is answered as the first time, another is refused.
    category:        of the template that the message is made from: `MARKETING`, `UTILITY` or `AUTHENTICATION`; empty
                     for every other message.
    id:              that the message is to have, made by the Webapp; empty leaves it to the Coreapp.
    repeated:        this was asked before, under the same id, and no answer came: it is answered as the first time if
                     that was done, by whoever owns the shard now.
    traceparent:     W3C's context of the trace that the request is in; empty for none.
    ttl:             seconds after its acceptance until it expires undelivered; 0 for the network's own limit.
    username:        user whose idempotency key it is; empty from Webapps of earlier releases.
    """

    account: str
    to: str
    kind: str
    content: bytes
    request_id: str = ""
    recipient_type: str = "individual"
    has_media: bool = False
    idempotency_key: str = ""
    fingerprint: bytes = b""
    category: str = ""
    id: str = ""
    repeated: bool = False
    traceparent: str = ""
    username: str = ""
    ttl: int = 0


class GetIdentity(Frame, tag="get_identity"):
    """GET /v1/contacts/{wa_id}/identity. Answered by `Identity`, or `Refused` with 1006 for no contact."""

    account: str
    wa_id: str


class AcknowledgeIdentity(Frame, tag="acknowledge_identity"):
    """PUT /v1/contacts/{wa_id}/identity. Answered by `Done` once it is on disk, or `Refused` with 1006 or 1009.

    hash: of the present identity, as `Identity` told it.
    """

    account: str
    wa_id: str
    hash: str


class MarkRead(Frame, tag="mark_read"):
    """PUT /v1/messages/{id}. Answered by `Done` when it is committed that the sender will be told, or `Refused`.

    Earlier messages of the same sender become read with it. Refused with 1006 when no message of this id was received.

    sender: whose shard the message is in; empty for the first one, which has the messages of groups.
    """

    account: str
    id: str
    request_id: str = ""
    sender: str = ""


class GetHealth(Frame, tag="get_health"):
    """GET /v1/health. Answered by `Health`."""


class GetMetrics(Frame, tag="get_metrics"):
    """The Coreapp's own metrics. Answered by `Metrics`."""


class SettingsChanged(Frame, tag="settings_changed"):
    """The application settings were written; read them again now. Answered by `Done` when they are in force."""

    account: str


class ReplayCallbacks(Frame, tag="replay_callbacks"):
    """Bring dead letters of a shard back, those named by `seqs` or up to 1,000 of all; of those named that failed and
    come again, now is their time. Answered by `Replayed`, or `Refused`.

    by: who asks, for the audit.
    """

    seqs: list[int] = []
    by: str = ""
    shard: int = 0


class PurgeCallbacks(Frame, tag="purge_callbacks"):
    """Delete callbacks of a shard unposted, but for what is being posted. Answered by `Purged`, or `Refused`.

    by: who asks; choice: why these; both for the audit. statuses: one whose status is none of them any more stays;
    empty for any.
    """

    seqs: list[int]
    by: str
    choice: str
    shard: int = 0
    statuses: list[str] = []


class PurgeJobs(Frame, tag="purge_jobs"):
    """Delete messages of a shard from the job queue that were never sent; each gets the status failed. Answered by
    `Purged`, or `Refused`. by, choice, statuses: as of `PurgeCallbacks`."""

    ids: list[str]
    by: str
    choice: str
    shard: int = 0
    statuses: list[str] = []


class RequestCode(Frame, tag="request_code"):
    """POST /v1/account: have the network send a code to the account's number. Answered by `Done` or `Refused`.

    pin: that the registration with this code names for the number's registration lock; empty for none.
    """

    account: str
    pin: str = ""


class VerifyCode(Frame, tag="verify_code"):
    """POST /v1/account/verify: register with the code. Answered by `Done` or `Refused`."""

    account: str
    code: str


class ExportKeys(Frame, tag="export_keys"):
    """The account's private keys, without sessions, sealed under a password. Answered by `Exported` or `Refused`."""

    account: str
    password: str


class RestoreKeys(Frame, tag="restore_keys"):
    """What `ExportKeys` gave takes the place of the account's keys; its sessions are forgotten.

    Answered by `Done`, once the account is registered with these keys, or `Refused`.
    """

    account: str
    password: str
    data: str


class CollectGarbage(Frame, tag="collect_garbage"):
    """PUT /v1/services/{kind}/gc. Answered by `Done` once it has begun, or is running already, or `Refused`.

    kind: `message` or `media`. The result goes to the webhook.
    """

    kind: str


SET_SUBJECT, LEAVE, REVOKE_INVITE = "set_subject", "leave", "revoke_invite"
PROMOTE, DEMOTE, REMOVE = "promote", "demote", "remove"
SET_ICON, DELETE_ICON = "set_icon", "delete_icon"


class CreateGroup(Frame, tag="create_group"):
    """POST /v1/groups. Answered by `GroupList` with the new group, or `Refused`."""

    account: str
    subject: str
    request_id: str = ""


class ListGroups(Frame, tag="list_groups"):
    """GET /v1/groups. Answered by `GroupList` or `Refused`."""

    account: str


class GetGroup(Frame, tag="get_group"):
    """GET /v1/groups/{id}. Answered by `GroupDescription` or `Refused`."""

    account: str
    id: str


class GetGroupInvite(Frame, tag="get_group_invite"):
    """GET /v1/groups/{id}/invite. Answered by `GroupInvite` or `Refused`."""

    account: str
    id: str


class GetGroupIcon(Frame, tag="get_group_icon"):
    """GET /v1/groups/{id}/icon. Answered by `GroupIcon` or `Refused`."""

    account: str
    id: str


class ChangeGroup(Frame, tag="change_group"):
    """One change of a group. Answered by `Done` once the network has made it, or `Refused`.

    action:  `SET_SUBJECT` (subject), `PROMOTE`, `DEMOTE`, `REMOVE` (numbers), `SET_ICON` (icon), `DELETE_ICON`,
             `REVOKE_INVITE` or `LEAVE`.
    numbers: of participants.
    """

    account: str
    id: str
    action: str
    subject: str = ""
    numbers: list[str] = []
    icon: bytes = b""
    request_id: str = ""


class GroupEntry(msgspec.Struct, gc=False):
    """created_at: Unix seconds."""

    id: str
    created_at: int


class GroupList(Frame, tag="group_list"):
    """Groups that the business is in, oldest first."""

    groups: list[GroupEntry]


class GroupDescription(Frame, tag="group_description"):
    """One group. created_at: Unix seconds; admins are participants, too."""

    id: str
    subject: str
    creator: str
    created_at: int
    participants: list[str]
    admins: list[str]


class GroupInvite(Frame, tag="group_invite"):
    """A link that lets anybody join."""

    link: str


class GroupIcon(Frame, tag="group_icon"):
    """kind: the content type."""

    kind: str
    content: bytes


class Exported(Frame, tag="exported"):
    """data: text that only the password opens."""

    data: str


class Replayed(Frame, tag="replayed"):
    """How many dead letters are pending again."""

    count: int


class Purged(Frame, tag="purged"):
    """How many callbacks or messages were deleted. changed: how many stay because they have another status by now, or
    were sent."""

    count: int
    changed: int = 0


class Done(Frame, tag="done"):
    """Nothing to say, but for the version of the link in the answer to `Hello`; 0 is a release that had none."""

    version: int = 0


class Leaving(Frame, tag="leaving"):
    """Announce a planned stop; the one frame of a Coreapp that answers no question, with `n` 0.

    The Webapp sends no further question over this connection, and closes it when it has every answer. The Coreapp
    answers until then, so that no outcome is left unknown. Sent only to Webapps of version 3 and later.
    """


class Contact(msgspec.Struct, omit_defaults=True, gc=False):
    """status: `valid` (with wa_id), `invalid`, `processing` or `failed`."""

    input: str
    status: str
    wa_id: str = ""


class Contacts(Frame, tag="contacts"):
    """One for each input, in the order asked."""

    contacts: list[Contact]


class Identity(Frame, tag="identity"):
    """A contact's identity. hash: base64; created_at: Unix milliseconds at which it was learnt."""

    hash: str
    created_at: int
    acknowledged: bool


class Accepted(Frame, tag="accepted"):
    """The message is committed in the job queue under this id."""

    id: str
    wa_id: str


class KeyTaken(Frame, tag="key_taken"):
    """The idempotency key belongs to another request; in_progress: which may be the same, and has no answer yet."""

    in_progress: bool


class Refused(Frame, tag="refused"):
    """The question was not done. `code` is one of the API's error codes, `details` is for the caller.

    retry_after: seconds, when trying again later makes sense.
    unknown:     it may have been done after all, now or when it was asked before.
    """

    code: int
    details: str
    retry_after: int = 0
    unknown: bool = False


# Of what a Coreapp needs: databases that messages go through, and the network.
DATABASE, NETWORK = "database", "network"


class Health(Frame, tag="health"):
    """gateway_status: connected | connecting | disconnected | unregistered.

    shards: that it answers for. statuses_dropped: since no webhook URL has been set, for want of room.
    away: why it is `disconnected` with shards: `DATABASE`, `NETWORK` or both. Releases before this say nothing.
    elsewhere: the network refuses the number's token, since somebody else has registered it. Then it is `unregistered`.
    """

    gateway_status: str
    node: str = ""
    shards: list[int] = []
    statuses_dropped: int = 0
    away: list[str] = []
    elsewhere: bool = False


class Metrics(Frame, tag="metrics"):
    """Prometheus text format."""

    text: str


GroupQuestion = CreateGroup | ListGroups | GetGroup | GetGroupInvite | GetGroupIcon | ChangeGroup
GroupAnswer = Done | GroupList | GroupDescription | GroupInvite | GroupIcon
Question = (
    Hello
    | Ping
    | CheckContacts
    | AcceptMessage
    | GetIdentity
    | AcknowledgeIdentity
    | MarkRead
    | GetHealth
    | GetMetrics
    | SettingsChanged
    | ReplayCallbacks
    | PurgeCallbacks
    | PurgeJobs
    | RequestCode
    | VerifyCode
    | ExportKeys
    | RestoreKeys
    | CollectGarbage
    | GroupQuestion
)
Answer = (
    Done
    | Leaving
    | Contacts
    | Accepted
    | Identity
    | KeyTaken
    | Refused
    | Health
    | Metrics
    | Replayed
    | Purged
    | Exported
    | GroupAnswer
)
