"""View of a number: its chats, and the messages of one chat with everything that belongs to them."""

from __future__ import annotations

import dataclasses
import datetime
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from handset import message_parts, reading
from handset.message_parts import CardPart, ChoicePart, FilePart, LocationPart, MessagePart, TextPart
from handset.web import recorder, strings
from handset.web.phones import OpenPhone
from tidings import e2ee
from tidings.media import kinds
from tidings.pages.printable import JOINERS, one_line
from tidings.storage.handset import chats, groups
from tidings.storage.handset.chats import ChatItemRow
from tidings.wire import addresses, content

log = logging.getLogger(__name__)

PAGE = 30  # messages of a chat
MAX_CHATS = 100
PREVIEW = 80  # characters of a message in the list of chats and in a quote
COLOURS = 8  # colours of the pictures of chats


@dataclasses.dataclass(frozen=True, slots=True)
class ShownChat:
    """Chat in the list."""

    id: str
    title: str
    initials: str
    colour: int
    preview: str
    when: str
    unread: int
    is_typing: bool
    state: str  # state of the newest message if it is an own one; empty otherwise


@dataclasses.dataclass(frozen=True, slots=True)
class ShownQuote:
    """Start of a message that another one answers."""

    author: str
    words: str
    position: int  # 0 when the message is not here


@dataclasses.dataclass(frozen=True, slots=True)
class ShownPart:
    """Part of a message, as a page refers to it."""

    part: MessagePart
    index: int  # index of a choice among the choices, or of a file among the fetchable files; else 0
    element: str  # `image`, `audio` or `video` for a file that the page embeds; empty for others


@dataclasses.dataclass(frozen=True, slots=True)
class ShownBlock:
    """Parts of a message, or of one of its cards, by their place on the page."""

    body: Sequence[ShownPart] = ()
    label: str = ""  # label of the button that opens the rows
    rows: Sequence[ShownPart] = ()  # rows and titles of sections
    buttons: Sequence[ShownPart] = ()
    cards: Sequence[ShownBlock] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.body or self.rows or self.buttons or self.cards)


@dataclasses.dataclass(frozen=True, slots=True)
class ShownItem:
    """Message or notice in a chat."""

    position: int
    id: str
    kind: str
    is_own: bool
    author: str  # author of a group message; empty for others
    day: str  # set on the first item of a day
    when: str
    sent_at: str  # ISO 8601
    notice: str  # words of a notice; empty for a message
    is_deleted: bool
    block: ShownBlock
    # Label for screen readers: the author and the start of the text; empty for an own message.
    screen_reader_label: str
    quote: ShownQuote | None
    origin: str  # forwarded, from an advertisement, or about a product; empty for none of these
    reactions: Sequence[tuple[str, str]]  # emoji and who
    has_reacted: bool  # the number itself has
    state: str  # state of an own message
    state_words: str
    mark: str


@dataclasses.dataclass(frozen=True, slots=True)
class ShownConversation:
    """Messages of a chat, oldest first."""

    entries: Sequence[ShownItem]
    last: int  # position of the newest item, also of a reaction; 0 for none
    older: int  # position before which there may be more; 0 for none
    typing: bool
    unread: int


async def list_chats(phone: OpenPhone) -> list[ShownChat]:
    """Return the chats of a phone, the newest first; groups without messages follow."""
    async with phone.database.reading() as connection:
        found = await chats.list_chats(connection, phone.number, MAX_CHATS)
        subjects = {row.group_id: row.subject for row in await groups.list_groups(connection, phone.number)}
    typing = set(phone.recorder.typing.list_of(phone.number))
    shown = [_chat(phone, summary, subjects, typing) for summary in found]
    known = {summary.chat for summary in found}
    shown += [_empty_chat(id_, subject) for id_, subject in subjects.items() if id_ not in known]
    return shown[:MAX_CHATS]


async def title_of(phone: OpenPhone, chat: str) -> str:
    """Return the title of a chat: a number with `+`, or the subject of a group."""
    async with phone.database.reading() as connection:
        row = await groups.find_group(connection, phone.number, chat) if addresses.names_group(chat) else None
    return _title(chat, row.subject if row is not None else "")


async def conversation(phone: OpenPhone, chat: str, before: int = 0) -> ShownConversation:
    """Return one page of a chat. before: position; 0 for the newest messages"""
    async with phone.database.reading() as connection:
        rows = await chats.list_page(connection, phone.number, chat, before=before, limit=PAGE + 1)
        older, rows = (rows[1].position if len(rows) > PAGE else 0), rows[-PAGE:]
        about = await chats.list_about(connection, phone.number, [row.id for row in rows if row.id])
        decoded = {row.position: recorder.decoded(_opened(phone, row)) for row in (*rows, *about)}
        wanted = {quoted for row in rows if (quoted := _quoted(decoded[row.position]))}
        quotes = {row.id: row for row in await chats.list_by_id(connection, phone.number, wanted)}
        unread = len(await chats.list_unread(connection, phone.number, chat, limit=PAGE))
    maker = _ItemMaker(phone, decoded, about=about, quotes=quotes)
    last = max(decoded, default=0)
    return ShownConversation(maker.make(rows), last, older, chat in phone.recorder.typing.list_of(phone.number), unread)


async def find(phone: OpenPhone, position: int, chat: str = "") -> tuple[ChatItemRow, str] | None:
    """Return a message with its content; `None` when it is not there or is a notice.

    position: 0 for no message
    chat: chat that must have it; empty for any
    """
    if not position:
        return None
    async with phone.database.reading() as connection:
        rows = await chats.list_at(connection, phone.number, [position])
    if not rows or not rows[0].id or chat not in ("", rows[0].chat):
        return None
    return rows[0], _opened(phone, rows[0])


def _opened(phone: OpenPhone, row: ChatItemRow) -> str:
    """Return the content of an item; empty for one that is damaged, so that the others are shown."""
    try:
        return phone.own.context.sealer.open_chat(row)
    except e2ee.CorruptState as error:
        log.error("chats.corrupt", extra={"number": row.number, "position": row.position, "error": str(error)})
        return ""


def preview(kind: str, raw: str) -> str:
    """Return the start of a message on one line."""
    text = reading.read(kind, raw).lines[0] if kind not in strings.KINDS else strings.KINDS[kind]
    if kind in kinds.KINDS:
        caption = message_parts.text_at(recorder.decoded(raw), kind, "caption")
        text = f"{text}: {caption}" if caption else text
    return one_line(text, JOINERS)[:PREVIEW]


# Types that a page embeds, by the element that shows them. Their content is checked before it is sent.
INLINE: Mapping[str, Sequence[str]] = {
    "image": ("image/jpeg", "image/png", "image/webp"),
    "audio": ("audio/aac", "audio/mp4", "audio/mpeg", "audio/ogg"),
    "video": ("video/mp4", "video/3gpp"),
}
_ELEMENTS = {"image": "image", "sticker": "image", "audio": "audio", "voice": "audio", "video": "video"}


def arrange(parts: Sequence[MessagePart]) -> ShownBlock:
    """Return the parts of a message by their place on the page."""
    return _Arrangement().block(parts)


class _Arrangement:
    """Counts choices and files in the order of the parts, however the page orders them."""

    def __init__(self) -> None:
        self._choices = self._files = 0

    def block(self, parts: Sequence[MessagePart]) -> ShownBlock:
        body: list[ShownPart] = []
        rows: list[ShownPart] = []
        buttons: list[ShownPart] = []
        cards: list[ShownBlock] = []
        label = ""
        for part in parts:
            match part:
                case CardPart():
                    cards.append(self.block(part.parts))
                case ChoicePart():
                    shown = ShownPart(part, self._choices, "")
                    (rows if part.look == message_parts.ROW else buttons).append(shown)
                    self._choices += 1
                case FilePart():
                    body.append(ShownPart(part, self._files, _element_of(part)))
                    self._files += part.pointer is not None
                case TextPart(place=message_parts.LABEL):
                    label = part.text
                case TextPart(place=message_parts.SECTION):
                    rows.append(ShownPart(part, 0, ""))
                case _:
                    body.append(ShownPart(part, 0, ""))
        return ShownBlock(body, label, rows, buttons, cards)


def _element_of(part: FilePart) -> str:
    """Return the element that shows a file of a type that browsers know; empty for none."""
    element = _ELEMENTS.get(part.kind, "")
    mime_type = part.pointer.mime_type.partition(";")[0] if part.pointer is not None else ""
    return element if mime_type in INLINE.get(element, ()) else ""


def _chat(
    phone: OpenPhone, summary: chats.ChatSummary, subjects: Mapping[str, str], typing: Iterable[str]
) -> ShownChat:
    row = summary.last
    raw = _opened(phone, row)
    if _is_notice(row):
        text = _notice(recorder.decoded(raw))
    elif row.kind == content.DELETED:
        text = strings.DELETED_BY_YOU if row.author == phone.number else strings.DELETED
    else:
        text = preview(row.kind, raw)
    title = _title(summary.chat, subjects.get(summary.chat, ""))
    return ShownChat(
        summary.chat,
        title,
        _initials(title),
        colour_of(summary.chat),
        text[:PREVIEW],
        _when(row.at),
        summary.unread,
        summary.chat in typing,
        row.state if row.author == phone.number and not row.about else "",
    )


def _empty_chat(group: str, subject: str) -> ShownChat:
    title = _title(group, subject)
    return ShownChat(group, title, _initials(title), colour_of(group), "", "", 0, False, "")


def _title(chat: str, subject: str) -> str:
    return (one_line(subject, JOINERS) or chat) if addresses.names_group(chat) else f"+{chat}"


def _initials(title: str) -> str:
    return title[-2:] if title.startswith("+") else title[:2]


def colour_of(chat: str) -> int:
    """Return the number of the colour of a chat's picture."""
    return sum(map(ord, chat)) % COLOURS


def _local_time(at: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at / 1000).astimezone()


def _when(at: int) -> str:
    moment = _local_time(at)
    return moment.strftime("%H:%M" if moment.date() == datetime.datetime.now().date() else "%Y-%m-%d")


def _quoted(decoded: Any) -> str:
    return message_parts.text_at(decoded, "context", "id")


def _is_notice(row: ChatItemRow) -> bool:
    # A message with this type, which earlier releases accepted, has an id.
    return row.kind == chats.NOTICE and not row.id


def _notice(notice: Any) -> str:
    """Return the words of a notice."""
    event, peer, detail, subject = (
        one_line(message_parts.text_at(notice, name)) for name in ("event", "by", "detail", "subject")
    )
    if event == "identity":
        return strings.IDENTITY.format(peer=peer)
    if event == "undecryptable":
        return strings.UNDECRYPTABLE.format(peer=peer)
    numbers = message_parts.value_at(notice, "numbers") or []
    who = ", ".join(f"+{one_line(str(number))}" for number in numbers)
    template = strings.GROUP_CHANGES.get(detail, strings.GROUP_CHANGED)
    return template.format(by=peer, who=who, subject=subject, detail=detail)


class _ItemMaker:
    """Makes the items of one page of a chat."""

    def __init__(
        self,
        phone: OpenPhone,
        decoded: Mapping[int, Any],
        *,
        about: Sequence[ChatItemRow],
        quotes: Mapping[str, ChatItemRow],
    ) -> None:
        """decoded: contents by position
        about:   reactions and withdrawals
        quotes:  messages that are answered, by id
        """
        self._phone = phone
        self._decoded = decoded
        self._quotes = quotes
        # The last reaction of each person, by message; and withdrawals as (message, author).
        self._reactions: dict[str, dict[str, str]] = {}
        self._deleted: set[tuple[str, str]] = set()
        for row in about:
            if row.kind == content.DELETED:
                self._deleted.add((row.about, row.author))
            else:
                emoji = message_parts.text_at(decoded[row.position], "reaction", "emoji")
                self._reactions.setdefault(row.about, {})[row.author] = one_emoji(emoji)

    def make(self, rows: Sequence[ChatItemRow]) -> list[ShownItem]:
        found, last_day = [], ""
        for row in rows:
            day = _local_time(row.at).strftime("%A, %d %B %Y")
            found.append(self._item(row, "" if day == last_day else day))
            last_day = day
        return found

    def _item(self, row: ChatItemRow, day: str) -> ShownItem:
        phone, inside = self._phone, self._decoded[row.position]
        is_own = row.author == phone.number
        is_deleted = (row.id, row.author) in self._deleted
        raw = "" if is_deleted else _opened(phone, row)
        mark, words = strings.STATES.get(row.state, ("", "")) if is_own else ("", "")
        return ShownItem(
            position=row.position,
            id=row.id,
            kind=row.kind,
            is_own=is_own,
            author=f"+{row.author}" if addresses.names_group(row.chat) and not is_own and row.author else "",
            day=day,
            when=_local_time(row.at).strftime("%H:%M"),
            sent_at=_local_time(row.at).isoformat(timespec="seconds"),
            notice=_notice(inside) if _is_notice(row) else "",
            is_deleted=is_deleted,
            block=ShownBlock() if is_deleted or not row.id else arrange(message_parts.read(row.kind, raw)),
            screen_reader_label=""
            if is_own or is_deleted or not row.id
            else f"+{row.author}: {preview(row.kind, raw)}",
            quote=None if is_deleted else self._quote(inside),
            origin="" if is_deleted else _origin(inside),
            reactions=self._reactions_to(row.id),
            has_reacted=bool(self._reactions.get(row.id, {}).get(phone.number)),
            state=row.state if is_own else "",
            state_words=_state_words(row, words),
            mark=mark,
        )

    def _quote(self, inside: Any) -> ShownQuote | None:
        quoted = _quoted(inside)
        if not quoted:
            return None
        row = self._quotes.get(quoted)
        if row is None:
            return ShownQuote("", one_line(quoted)[:PREVIEW], 0)
        author = strings.YOU if row.author == self._phone.number else f"+{row.author}"
        return ShownQuote(author, preview(row.kind, _opened(self._phone, row)), row.position)

    def _reactions_to(self, message_id: str) -> list[tuple[str, str]]:
        by_emoji: dict[str, list[str]] = {}
        for author, emoji in self._reactions.get(message_id, {}).items():
            if emoji:
                by_emoji.setdefault(emoji, []).append(strings.YOU if author == self._phone.number else f"+{author}")
        return [(emoji, ", ".join(who)) for emoji, who in by_emoji.items()]


def one_emoji(text: str) -> str:
    """Return a reaction without characters that could disturb the page. Joiners of emoji stay."""
    return "".join(c for c in text if c.isprintable() or c in JOINERS)[:16]


def _origin(inside: Any) -> str:
    context = message_parts.value_at(inside, "context")
    if message_parts.value_at(context, "frequently_forwarded") is True:
        return strings.FORWARDED_OFTEN
    if message_parts.value_at(context, "forwarded") is True:
        return strings.FORWARDED
    product = message_parts.text_at(context, "referred_product", "product_retailer_id")
    if product:
        return strings.OF_PRODUCT.format(product=one_line(product))
    url = message_parts.text_at(inside, "referral", "source_url")
    return strings.OF_ADVERTISEMENT.format(url=one_line(url)[:PREVIEW]) if url else ""


def _state_words(row: ChatItemRow, words: str) -> str:
    """Return the state of an own message in words, with the reason of a failure, or the readers in a group."""
    detail = ", ".join(row.receipts.get("detail", ()))
    if detail:
        return f"{words}: {one_line(detail)}"
    people = row.receipts.get(row.state, ())
    shown = ", ".join(f"+{person}" for person in people)
    return strings.STATE_BY.format(state=words, people=shown) if people else words


def geo_uri(part: LocationPart) -> str:
    """Return the URI of a location for map programs; empty when it is no point on Earth."""
    latitude, longitude = part.latitude, part.longitude
    for degrees, most in ((latitude, 90), (longitude, 180)):
        if isinstance(degrees, bool) or not isinstance(degrees, int | float) or not -most <= degrees <= most:
            return ""
    return f"geo:{latitude},{longitude}"
