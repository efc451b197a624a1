"""Frames between Webapp and Coreapp: each request has one response, matched by `n`."""

from __future__ import annotations

import msgspec


class Frame(msgspec.Struct, tag_field="t", omit_defaults=True, gc=False):
    """Base class of all frames."""

    n: int  # number of the request on this connection, from 1


# Version that a Coreapp reports in its response to `Hello`. 1 has `Ping` and `AcceptMessage.repeated`; 2 has
# `CheckContacts.of`; 3 sends `ShutdownNotice`; 4 has `ReadCallback` and `ResendCallbacks`; 5 has `ChangeProfile`,
# `SetPin` and `QueueWebhook`, and records `ReadCallback.by`.
LINK_VERSION = 5
RECORDS_READERS = CHANGES_PROFILES = QUEUES_WEBHOOKS = 5  # first versions that do so
# Text of the refusal of a request that needs a later version.
EARLIER_RELEASE = "has an earlier release, which cannot do this: upgrade it"
# Callbacks that a shard replays per second, after up to 2,000 at once.
REPLAYS_PER_SECOND = 200


class Hello(Frame, tag="hello"):
    """First frame of a connection. The response is `Done` with `LINK_VERSION`, or a closed connection."""

    key: str  # the installation's link key
    version: int = 0  # the Webapp's `LINK_VERSION`; 0 from releases that sent none
    operator_key: str = ""  # opens replays, purges and contents; Webapps have none, except for the console


class Ping(Frame, tag="ping"):
    """Liveness probe.

    The response is `Done`, at once, whatever else the Coreapp is doing. For version 1 and later: earlier ones close the
    connection over it.
    """


class CheckContacts(Frame, tag="check_contacts"):
    """POST /v1/contacts. The response is `Contacts` or `Refused`."""

    account: str
    inputs: list[str]
    wait: bool = False
    force_check: bool = False
    request_id: str = ""
    # Number whose shard is to respond, when all numbers belong to that shard; empty for the first shard.
    of: str = ""
    # Id of a call that does not wait, the same in repetitions, so that it has one callback; empty from Webapps of
    # earlier releases.
    id: str = ""


class AcceptMessage(Frame, tag="accept_message"):
    """POST /v1/messages, validated. The response is `Accepted`, `KeyTaken` or `Refused`."""

    account: str
    to: str  # digits, no `+`; the id of a group when `recipient_type` is `group`
    kind: str  # the message's type, such as `text`
    content: bytes  # JSON text that is encrypted for the recipient: `{"type":"text","text":{"body":…}}`
    request_id: str = ""
    recipient_type: str = "individual"
    has_media: bool = False  # whether the content has media objects, to be replaced by pointers for the recipient
    # The caller's key; empty for none. A request with the same key and `fingerprint` gets the first response again, one
    # with another fingerprint is refused.
    idempotency_key: str = ""
    fingerprint: bytes = b""
    # Category of the message's template: `MARKETING`, `UTILITY` or `AUTHENTICATION`; empty for other messages.
    category: str = ""
    id: str = ""  # id of the message, made by the Webapp; empty to let the Coreapp make it
    # Whether the same request was sent before, with the same id, and got no response. If it was carried out, by the
    # present or an earlier owner of the shard, it gets the first response.
    repeated: bool = False
    traceparent: str = ""  # W3C trace context of the request; empty for none
    username: str = ""  # user who owns the idempotency key; empty from Webapps of earlier releases
    ttl: int = 0  # seconds from acceptance to expiry if undelivered; 0 for the network's own limit
    callback_data: str = ""  # text of the business that the message's statuses return; empty for none
    # Whether the message needs no earlier contacts call, as in the Cloud API, which has none. Its recipient,
    # its identity hash and the target of a reaction are checked at the acceptance, and a failure is a status: `failed`,
    # with 1013 for a recipient who is not on the network. Without it such a recipient makes the request fail, as in v1.
    checked_late: bool = False
    # Hash of the recipient's identity that the business knows, as in `Identity`; empty for none. A message to a
    # recipient with another identity gets the status failed with 480.
    identity_hash: str = ""
    # Whether to refuse the message with 131056 if it exceeds the Cloud API's pair rate.
    pair_limited: bool = False
    # Refuse the message with 131048 if its recipient is outside the service window, and this number of others were
    # reached there within 24 hours; 0 for no limit.
    recipient_limit: int = 0


class GetIdentity(Frame, tag="get_identity"):
    """GET /v1/contacts/{wa_id}/identity. The response is `Identity`, or `Refused` with 1006 for no contact."""

    account: str
    wa_id: str


class AcknowledgeIdentity(Frame, tag="acknowledge_identity"):
    """PUT /v1/contacts/{wa_id}/identity. The response is `Done` once it is on disk, or `Refused` with 1006 or 1009."""

    account: str
    wa_id: str
    hash: str  # hash of the present identity, as in `Identity`


class MarkRead(Frame, tag="mark_read"):
    """PUT /v1/messages/{id}. The response is `Done` once the read receipt is committed, or `Refused`.

    Earlier messages of the same sender are marked as read too. Refused with 1006 when no message with this id was
    received.
    """

    account: str
    id: str
    request_id: str = ""
    sender: str = ""  # number whose shard has the message; empty for the first shard, which has messages of groups
    typing: bool = False  # whether to also show the sender that the business is typing; only the Cloud API sets it


class GetHealth(Frame, tag="get_health"):
    """GET /v1/health. The response is `Health`."""

    account: str = ""  # number whose shards are reported; empty for all shards of the process


class GetMetrics(Frame, tag="get_metrics"):
    """Request for the Coreapp's own metrics. The response is `Metrics`."""


class SettingsChanged(Frame, tag="settings_changed"):
    """Notification that the application settings were written. The response is `Done` when they are in force."""

    account: str


class ReplayCallbacks(Frame, tag="replay_callbacks"):
    """Make dead letters of a shard pending again, and failed callbacks that are named due now.

    The response is `Replayed` or `Refused`. A shard replays `REPLAYS_PER_SECOND`, and refuses more with
    `TOO_MANY_REQUESTS`.
    """

    seqs: list[int] = []  # callbacks to replay; empty for up to 1,000 dead letters
    by: str = ""  # requester, for the audit log
    shard: int = 0


class ResendCallbacks(Frame, tag="resend_callbacks"):
    """As `ReplayCallbacks`, for callbacks of one number that an administrator of it has named. Also posts callbacks
    again that the webhook has accepted, under the same event ids. For version 4 and later.
    """

    account: str
    seqs: list[int]  # callbacks to post again, at most 1,000
    by: str  # requester, for the audit log
    shard: int = 0
    accepted: bool = True  # whether to also post those again that the webhook has accepted by now


class ReadCallback(Frame, tag="read_callback"):
    """Open a callback of a number for an administrator of it. The response is `CallbackText` or `Refused`. For version
    4 and later.
    """

    account: str
    seq: int
    # Requester, for the audit; empty from Webapps of earlier releases. Coreapps before version 5 ignore it.
    by: str = ""


class PurgeCallbacks(Frame, tag="purge_callbacks"):
    """Delete unposted callbacks of a shard, except those being posted. The response is `Purged` or `Refused`."""

    seqs: list[int]
    by: str  # requester, for the audit log
    choice: str  # selection that these came from, for the audit log
    shard: int = 0
    statuses: list[str] = []  # keep callbacks whose status is no longer one of these; empty for any status


class PurgeJobs(Frame, tag="purge_jobs"):
    """Delete unsent messages of a shard from the job queue; each gets the status failed.

    The response is `Purged` or `Refused`.
    """

    ids: list[str]
    by: str  # as in `PurgeCallbacks`
    choice: str  # as in `PurgeCallbacks`
    shard: int = 0
    statuses: list[str] = []  # as in `PurgeCallbacks`


class ShowMessage(Frame, tag="show_message"):
    """Open the stored content of a message that is not delivered yet. The response is `Shown` or `Refused`."""

    id: str
    by: str  # requester, for the audit log
    shard: int = 0


class EmptyQueues(Frame, tag="empty_queues"):
    """POST /tidings/reset: delete all messages of the job queue and all callbacks, without reporting anything.

    The response is `Purged` with the number of both, or `Refused` outside test mode.
    """


class QueueWebhook(Frame, tag="queue_webhook"):
    """POST /tidings/webhooks, validated: one webhook of the Cloud API.

    The response is `Done` once it is on disk, or `Refused`. For version 5 and later.
    """

    account: str
    field: str  # such as `account_update`
    value: bytes  # JSON object; the Coreapp adds the description of the number that it lacks
    event: str  # event id, made by the Webapp


MESSAGE_EVENT, STATUS_EVENT, ERROR_EVENT, TEMPLATE_EVENT = "message", "status", "error", "template"


class UpstreamEvent(msgspec.Struct, omit_defaults=True, gc=False):
    """One event that the real Cloud API has posted to a number."""

    kind: str  # `MESSAGE_EVENT`, `STATUS_EVENT`, `ERROR_EVENT`, or `TEMPLATE_EVENT` for a change of any template
    body: bytes  # JSON: one of `messages`, `statuses` or `errors`; empty for a template
    peer: str = ""  # number of the other party, which decides about the shard; empty for errors and templates
    name: str = ""  # name in the profile of a message's sender; empty without one
    user_id: str = ""  # business-scoped id of a message's sender for whom `peer` stands; empty where it is their number


class TakeUpstreamEvents(Frame, tag="take_upstream_events"):
    """POST /cloud/callbacks/{secret}, with a valid signature: events of recipients of one shard.

    The response is `Done` once everything is on disk, or `Refused`. A repetition changes nothing.
    """

    account: str
    events: list[UpstreamEvent]


CREATE_TEMPLATE, EDIT_TEMPLATE, DELETE_TEMPLATE = "create", "edit", "delete"


class ChangeTemplate(Frame, tag="change_template"):
    """One change of a template of a number that sends through the real Cloud API.

    The response is `Done` once the WABA has made it and the number's templates show it, or `Refused`, which names what
    is known about an unfinished change.
    """

    account: str
    action: str  # `CREATE_TEMPLATE`, `EDIT_TEMPLATE` or `DELETE_TEMPLATE`
    name: str
    language: str = ""  # empty to delete the template in all languages
    definition: bytes = b""  # JSON object for the Graph API: a new template, or the changed fields; empty to delete


class ChangeProfile(Frame, tag="change_profile"):
    """Change of the profile of a number that sends through the real Cloud API.

    The response is `Done` once the Cloud API has made it and the profile shows it, or `Refused`, which names what is
    known about an unfinished change. For version 5 and later.
    """

    account: str
    fields: bytes  # JSON object: `about` and fields of the business profile, under their names in v1; others stay
    photo: str = ""  # name of a file of the store, which becomes the photo; empty to keep the present one
    photo_type: str = ""  # "image/jpeg" or "image/png"; empty without `photo`


class SetPin(Frame, tag="set_pin"):
    """POST /v1/settings/account/two-step of a number that sends through the real Cloud API.

    The response is `Done` once the Cloud API has the PIN, or `Refused`, which names what is known. For version 5 and
    later.
    """

    account: str
    pin: str


class RequestCode(Frame, tag="request_code"):
    """POST /v1/account: have the network send a code to the account's number. The response is `Done` or `Refused`."""

    account: str
    pin: str = ""  # PIN of the number's registration lock, for the registration with this code; empty for none


class VerifyCode(Frame, tag="verify_code"):
    """POST /v1/account/verify: register with the code. The response is `Done` or `Refused`."""

    account: str
    code: str


class ExportKeys(Frame, tag="export_keys"):
    """Export the account's private keys, without sessions, sealed under a password.

    The response is `Exported` or `Refused`.
    """

    account: str
    password: str


class RestoreKeys(Frame, tag="restore_keys"):
    """Replace the account's keys by exported ones, and delete its sessions.

    The response is `Done`, once the account is registered with these keys, or `Refused`.
    """

    account: str
    password: str
    data: str  # keys as in `Exported`


class CollectGarbage(Frame, tag="collect_garbage"):
    """PUT /v1/services/{kind}/gc. The response is `Done` once it has started, or runs already, or `Refused`.

    The result goes to the webhook.
    """

    kind: str  # `message` or `media`
    account: str = ""  # number whose rows are collected; empty for the first number, from Webapps of earlier releases


SET_SUBJECT, LEAVE, REVOKE_INVITE = "set_subject", "leave", "revoke_invite"
PROMOTE, DEMOTE, REMOVE = "promote", "demote", "remove"
SET_ICON, DELETE_ICON = "set_icon", "delete_icon"


class CreateGroup(Frame, tag="create_group"):
    """POST /v1/groups. The response is `GroupList` with the new group, or `Refused`."""

    account: str
    subject: str
    request_id: str = ""


class ListGroups(Frame, tag="list_groups"):
    """GET /v1/groups. The response is `GroupList` or `Refused`."""

    account: str


class GetGroup(Frame, tag="get_group"):
    """GET /v1/groups/{id}. The response is `GroupDescription` or `Refused`."""

    account: str
    id: str


class GetGroupInvite(Frame, tag="get_group_invite"):
    """GET /v1/groups/{id}/invite. The response is `GroupInvite` or `Refused`."""

    account: str
    id: str


class GetGroupIcon(Frame, tag="get_group_icon"):
    """GET /v1/groups/{id}/icon. The response is `GroupIcon` or `Refused`."""

    account: str
    id: str


class ChangeGroup(Frame, tag="change_group"):
    """One change of a group. The response is `Done` once the network has made the change, or `Refused`."""

    account: str
    id: str
    # `SET_SUBJECT` (subject), `PROMOTE`, `DEMOTE`, `REMOVE` (numbers), `SET_ICON` (icon), `DELETE_ICON`,
    # `REVOKE_INVITE` or `LEAVE`.
    action: str
    subject: str = ""
    numbers: list[str] = []  # numbers of participants
    icon: bytes = b""
    request_id: str = ""


class GroupEntry(msgspec.Struct, gc=False):
    id: str
    created_at: int  # Unix seconds


class GroupList(Frame, tag="group_list"):
    """Groups that the business is in, oldest first."""

    groups: list[GroupEntry]


class GroupDescription(Frame, tag="group_description"):
    """One group, with its participants."""

    id: str
    subject: str
    creator: str
    created_at: int  # Unix seconds
    participants: list[str]
    admins: list[str]  # each is also in `participants`


class GroupInvite(Frame, tag="group_invite"):
    """Link with which any device can join."""

    link: str


class GroupIcon(Frame, tag="group_icon"):
    kind: str  # content type
    content: bytes


class Exported(Frame, tag="exported"):
    data: str  # keys sealed under the password, as text


class Replayed(Frame, tag="replayed"):
    count: int  # callbacks that are pending again


class AttemptResponse(msgspec.Struct, gc=False):
    at: int  # start of the attempt, Unix milliseconds
    content: bytes  # first bytes of the content


class CallbackText(Frame, tag="callback_text"):
    """Texts of one callback; empty where they cannot be opened."""

    body: bytes
    responses: list[AttemptResponse]  # responses that had content


class Purged(Frame, tag="purged"):
    count: int  # callbacks or messages that were deleted
    changed: int = 0  # kept because their status has changed since, or because they were sent


class Shown(Frame, tag="shown"):
    content: bytes  # JSON text


class Done(Frame, tag="done"):
    """Success without a result."""

    version: int = 0  # `LINK_VERSION`, in the response to `Hello`; 0 from releases that had none


class ShutdownNotice(Frame, tag="leaving"):
    """Announcement of a planned stop: the one frame of a Coreapp that is no response, with `n` 0.

    The Webapp sends no further request over this connection, and closes it after the last response. The Coreapp
    responds until then, so that no outcome is left unknown. Sent only to Webapps of version 3 and later.
    """


class Contact(msgspec.Struct, omit_defaults=True, gc=False):
    input: str
    status: str  # `valid` (with wa_id), `invalid`, `processing` or `failed`
    wa_id: str = ""


class Contacts(Frame, tag="contacts"):
    """Results of `CheckContacts`: one for each input, in the same order."""

    contacts: list[Contact]


class Identity(Frame, tag="identity"):
    """A contact's identity."""

    hash: str  # base64
    created_at: int  # Unix milliseconds at which the identity was received
    acknowledged: bool


class Accepted(Frame, tag="accepted"):
    """Acceptance of a message: it is committed in the job queue under this id."""

    id: str
    wa_id: str


class KeyTaken(Frame, tag="key_taken"):
    """Refusal of a message because its idempotency key belongs to another request."""

    in_progress: bool  # whether the other request has no response yet; it may be the same request


class Refused(Frame, tag="refused"):
    """Refusal of a request."""

    code: int  # one of the API's error codes
    details: str  # explanation for the caller
    retry_after: int = 0  # seconds; 0 when a retry is of no use
    unknown: bool = False  # whether the request may have been carried out after all, now or when it was sent before


# Dependencies of a Coreapp: the databases that messages pass through, and the network.
DATABASE, NETWORK = "database", "network"


class Health(Frame, tag="health"):
    """State of a Coreapp."""

    gateway_status: str  # connected | connecting | disconnected | unregistered
    node: str = ""
    shards: list[int] = []  # shards that it owns
    statuses_dropped: int = 0  # since no webhook URL has been set, because the queue was full
    # Causes of `disconnected` of a Coreapp with shards: `DATABASE`, `NETWORK` or both. Empty from earlier releases.
    away: list[str] = []
    # `registered_elsewhere` of `/v1/health`: whether the network rejects the number's token because another client has
    # registered the number. The status is `unregistered` then.
    elsewhere: bool = False


class Metrics(Frame, tag="metrics"):
    text: str  # Prometheus text format


UpstreamRequest = TakeUpstreamEvents | ChangeTemplate | ChangeProfile | SetPin
GroupRequest = CreateGroup | ListGroups | GetGroup | GetGroupInvite | GetGroupIcon | ChangeGroup
GroupResponse = Done | GroupList | GroupDescription | GroupInvite | GroupIcon
Request = (
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
    | ResendCallbacks
    | ReadCallback
    | PurgeCallbacks
    | PurgeJobs
    | ShowMessage
    | EmptyQueues
    | QueueWebhook
    | UpstreamRequest
    | RequestCode
    | VerifyCode
    | ExportKeys
    | RestoreKeys
    | CollectGarbage
    | GroupRequest
)
Response = (
    Done
    | ShutdownNotice
    | Contacts
    | Accepted
    | Identity
    | KeyTaken
    | Refused
    | Health
    | Metrics
    | Replayed
    | CallbackText
    | Purged
    | Shown
    | Exported
    | GroupResponse
)
