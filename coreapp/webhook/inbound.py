"""Messages of recipients: the known contents, each read into the form in which the webhook gets it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from coreapp.webhook import limits
from tidings.wire import codes, media_objects
from tidings.wire.addresses import WaId
from tidings.wire.content import DELETED, NULL, SENDER_KEY, SENDER_KEY_REQUEST, SenderKey, SenderKeyRequest
from tidings.wire.decoding import UNREADABLE
from tidings.wire.media_objects import Pointer

UNKNOWN = "unknown"
SYSTEM = "system"
MAX_ID = 64
DOWNLOADED, UNDOWNLOADED = "downloaded", "undownloaded"

Id = Annotated[str, Meta(max_length=MAX_ID, pattern=r"^[!-~]+\Z")]
ReferralText = Annotated[str, Meta(max_length=2_048)]
UNSUPPORTED = "Message type is not currently supported"


class _Part(msgspec.Struct, omit_defaults=True, gc=False):
    """Base of all parts. Unknown fields are dropped."""


class InboundText(_Part):
    body: limits.Body


class InboundLocation(_Part):
    """Coordinates in degrees."""

    latitude: Annotated[float, Meta(ge=-90, le=90)]
    longitude: Annotated[float, Meta(ge=-180, le=180)]
    name: limits.Word | None = None
    address: limits.Word | None = None
    url: limits.Url | None = None


class StickerMetadata(_Part):
    """Emojis that a sticker represents."""

    emojis: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=20)]


class InboundMedia(_Part):
    """A file as the webhook gets it."""

    mime_type: limits.MimeType
    sha256: limits.Hash
    caption: limits.Caption | None = None
    filename: str | None = None
    status: str = ""  # `downloaded` or `undownloaded`
    id: str | None = None  # media id of a downloaded file; None for others
    file: str | None = None  # path of a downloaded file; None for others
    metadata: StickerMetadata | None = None


class SentMedia(_Part):
    """A file as a recipient sends it: its description and its pointer."""

    mime_type: limits.MimeType
    sha256: limits.Hash
    caption: limits.Caption | None = None
    filename: str | None = None
    blob: Any = None
    key: Any = None
    digest: Any = None
    size: Any = None
    metadata: Any = None


class ButtonReply(_Part):
    id: limits.ButtonId
    title: limits.ButtonTitle


class ListReply(_Part):
    id: limits.RowId
    title: limits.RowTitle
    description: limits.RowDescription | None = None


class FlowReply(_Part):
    """Reply of a form."""

    name: limits.Word
    body: limits.Word
    response_json: limits.Form


class InteractiveButton(_Part, tag_field="type", tag="button_reply"):
    button_reply: ButtonReply


class InteractiveList(_Part, tag_field="type", tag="list_reply"):
    list_reply: ListReply


class InteractiveFlow(_Part, tag_field="type", tag="nfm_reply"):
    nfm_reply: FlowReply


class InboundButton(_Part, omit_defaults=False):
    """Quick reply of a template. The payload may be null."""

    text: limits.QuickReply
    payload: limits.Payload | None = None


class OrderItem(_Part):
    product_retailer_id: limits.CatalogId
    quantity: limits.Quantity
    item_price: limits.Price
    currency: limits.Currency


class Order(_Part):
    catalog_id: limits.CatalogId
    product_items: list[OrderItem]
    text: limits.Word | None = None


class Reaction(_Part, omit_defaults=False):
    """Reaction to a message. An empty emoji removes the reaction."""

    message_id: Id
    emoji: limits.Emoji


class InboundSystem(_Part):
    """Notice of a recipient's new number."""

    type: Literal["user_changed_number"]
    new_wa_id: WaId
    body: limits.Word = ""


class Deleted(_Part):
    """Revocation of a message."""

    id: Id


class InboundSenderKey(SenderKey):
    """Sender key of a group, with the limits that the business accepts."""

    group: Id
    distribution: Annotated[bytes, Meta(max_length=4096)]


class InboundKeyRequest(SenderKeyRequest):
    """Request for the business's key of a group."""

    group: Id


class ReferredProduct(_Part):
    """Product that a question refers to."""

    catalog_id: limits.CatalogId
    product_retailer_id: limits.CatalogId


class Context(msgspec.Struct, omit_defaults=True, gc=False, rename={"sender": "from"}):
    """Message that this one replies to, and its author."""

    id: Id | None = None
    sender: WaId | None = None
    group_id: str | None = None
    mentions: Annotated[list[WaId], Meta(max_length=256)] | None = None
    forwarded: bool = False
    frequently_forwarded: bool = False
    referred_product: ReferredProduct | None = None


class Referral(_Part):
    """Advertisement or post that led a recipient to the business. Its pictures and videos are omitted: they are not
    fetched.
    """

    source_url: ReferralText
    source_type: Annotated[str, Meta(max_length=64)] | None = None
    source_id: Annotated[str, Meta(max_length=128)] | None = None
    headline: ReferralText | None = None
    body: ReferralText | None = None
    # In webhooks of the Cloud API only.
    media_type: Annotated[str, Meta(max_length=64)] | None = None
    ctwa_clid: Annotated[str, Meta(max_length=1_024)] | None = None  # id of the click on the advertisement


class CardName(_Part):
    formatted_name: limits.Word
    first_name: limits.Word | None = None
    last_name: limits.Word | None = None
    middle_name: limits.Word | None = None
    suffix: limits.Word | None = None
    prefix: limits.Word | None = None


class CardAddress(_Part):
    street: limits.Word | None = None
    city: limits.Word | None = None
    state: limits.Word | None = None
    zip: limits.Word | None = None
    country: limits.Word | None = None
    country_code: limits.Word | None = None
    type: limits.Word | None = None


class CardEmail(_Part):
    email: limits.Word | None = None
    type: limits.Word | None = None


class CardPhone(_Part):
    phone: limits.Word | None = None
    type: limits.Word | None = None
    wa_id: limits.Word | None = None


class CardUrl(_Part):
    url: limits.Word | None = None
    type: limits.Word | None = None


class CardMessenger(_Part):
    service: limits.Word | None = None
    user_id: limits.Word | None = None


class CardOrganisation(_Part):
    company: limits.Word | None = None
    department: limits.Word | None = None
    title: limits.Word | None = None


class ContactCard(_Part):
    """Contact card of one person."""

    name: CardName
    addresses: list[CardAddress] | None = None
    birthday: limits.Word | None = None
    emails: list[CardEmail] | None = None
    org: CardOrganisation | None = None
    phones: list[CardPhone] | None = None
    urls: list[CardUrl] | None = None
    ims: list[CardMessenger] | None = None


class InboundProfile(_Part):
    name: str


_CONTENTS: Mapping[str, Any] = {
    "text": InboundText,
    "location": InboundLocation,
    "contacts": Annotated[list[ContactCard], Meta(min_length=1)],
    "interactive": InteractiveButton | InteractiveList | InteractiveFlow,
    "button": InboundButton,
    "order": Order,
    "reaction": Reaction,
    SYSTEM: InboundSystem,
    DELETED: Deleted,
    SENDER_KEY: InboundSenderKey,
    SENDER_KEY_REQUEST: InboundKeyRequest,
    **dict.fromkeys(media_objects.KINDS, SentMedia),
}
_decoders = {kind: msgspec.json.Decoder(type_).decode for kind, type_ in _CONTENTS.items()}
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_type = msgspec.json.Decoder(str).decode
_decode_profile = msgspec.json.Decoder(InboundProfile).decode
_decode_context = msgspec.json.Decoder(Context).decode
_decode_referral = msgspec.json.Decoder(Referral).decode


@dataclasses.dataclass(frozen=True, slots=True)
class Inbound:
    """One parsed message."""

    # `unknown` for an unsupported content, `ephemeral` for a disappearing message, which is not shown to a business
    kind: str
    content: Any = None  # content under the kind's name in the webhook; None for none
    name: str = ""  # name in the sender's profile; empty without one
    context: Context | None = None
    pointer: Pointer | None = None  # pointer of a media message's file; None if it has no valid one
    referral: Referral | None = None  # advertisement that led the sender here; None for none
    error: tuple[int, str] | None = None  # code and details of what is wrong; always set for `unknown`


def read(plaintext: bytes) -> Inbound:
    """Parse a message. Never raises: an unreadable message, or one beyond the API's limits, is `unknown`."""
    try:
        fields = _decode_fields(plaintext)
        kind = _decode_type(fields["type"])
    except (*UNREADABLE, KeyError):
        return _unknown()
    if kind in (NULL, "ephemeral"):
        return Inbound(kind)
    name = _find_name(fields.get("profile"))
    decode = _decoders.get(kind)
    try:
        if decode is None:
            return _unknown(name)
        content = decode(fields[kind])
    except (*UNREADABLE, KeyError) as error:
        return _unknown(name, limits.describe(kind, error))
    pointer, wrong = None, None
    if isinstance(content, SentMedia):
        try:
            pointer = _read_pointer(content)
        except msgspec.ValidationError as error:
            wrong = (codes.MEDIA_DOWNLOAD, f"the message does not state the location of its file: {_field_of(error)}")
        about = _find_emojis(content) if kind == "sticker" else None
        filename = limits.cut_file_name(content.filename) if content.filename else content.filename
        content = InboundMedia(
            content.mime_type, content.sha256, content.caption, filename, UNDOWNLOADED, metadata=about
        )
    context, referral = _find(_decode_context, fields.get("context")), _find(_decode_referral, fields.get("referral"))
    return Inbound(kind, content, name, context, pointer, referral, wrong)


def _unknown(name: str = "", details: str = "") -> Inbound:
    return Inbound(UNKNOWN, name=name, error=(codes.TYPE_UNSUPPORTED, details or UNSUPPORTED))


def _read_pointer(sent: SentMedia) -> Pointer:
    """Return the pointer in a media message. Bytes are base64 in JSON. Raises `msgspec.ValidationError`."""
    return msgspec.convert({name: getattr(sent, name) for name in Pointer.__struct_fields__}, Pointer)


def _field_of(error: msgspec.ValidationError) -> str:
    """Return a sentence that names the invalid field of a pointer."""
    found = re.search(r"`\$\.(\w+)`", str(error))
    return f"`{found[1]}` is missing or invalid" if found else "its pointer is malformed"


def _find_emojis(sent: SentMedia) -> StickerMetadata | None:
    try:
        return msgspec.convert(sent.metadata, StickerMetadata | None)
    except msgspec.ValidationError:
        return None


def _find_name(raw: msgspec.Raw | None) -> str:
    found: InboundProfile | None = _find(_decode_profile, raw)
    return found.name[: limits.MAX_PROFILE_NAME].strip() if found is not None else ""


def _find(decode: Callable[[msgspec.Raw], Any], raw: msgspec.Raw | None) -> Any:
    """Return an optional part of a message, decoded; None if it is missing or invalid."""
    try:
        return decode(raw) if raw is not None else None
    except UNREADABLE:
        return None
