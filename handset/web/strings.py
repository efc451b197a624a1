"""Words of the pages, in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidings.storage.handset import chats

TITLE = "Handset"

# State of an own message: its mark and its words.
STATES: Mapping[str, tuple[str, str]] = {
    chats.QUEUED: ("·", "waiting to be sent"),
    chats.SENT: ("✓", "sent"),
    chats.DELIVERED: ("✓✓", "delivered"),
    chats.READ: ("✓✓", "read"),
    chats.FAILED: ("!", "not sent"),
    chats.EXPIRED: ("!", "never delivered: the recipient was offline too long"),
}

# Message of a type in the list of chats and in quotes.
KINDS: Mapping[str, str] = {
    "image": "Picture",
    "video": "Video",
    "audio": "Audio",
    "voice": "Voice message",
    "document": "Document",
    "sticker": "Sticker",
    "ephemeral": "Disappearing message",
    "poll": "Poll",
}
MARKS: Mapping[str, str] = {"picked": "Chosen", "reaction": "Reaction", "system": "Notice"}
DELETED = "This message was deleted."
DELETED_BY_YOU = "You deleted this message."
UNDISPLAYED = "This phone does not display messages of the type “{kind}”."

REACTIONS: Sequence[tuple[str, str]] = (
    ("👍", "thumbs up"),
    ("❤️", "heart"),
    ("😂", "laughing"),
    ("😮", "surprised"),
    ("🙏", "thanks"),
)

ENCRYPTED = (
    "Messages and files are encrypted end to end between this phone and the other side; the network stores only"
    " ciphertext. Keys and chats are sealed on this machine. This page travels unencrypted only within this machine."
)
ENCRYPTED_TLS = (
    "Messages and files are encrypted end to end between this phone and the other side; the network stores only"
    " ciphertext. Keys and chats are sealed on the phone's machine, and TLS protects this page on its way to you."
)

IDENTITY = "The security code of +{peer} has changed: it has registered again."
UNDECRYPTABLE = "A message from +{peer} could not be decrypted. It is requested again."
GROUP_CHANGES: Mapping[str, str] = {
    "created": "+{by} created the group “{subject}”.",
    "joined": "{who} joined.",
    "left": "{who} left.",
    "removed": "+{by} removed {who}.",
    "subject": "+{by} renamed the group to “{subject}”.",
    "admins": "The admins have changed: {who}.",
    "icon": "+{by} changed the picture.",
    "invite": "+{by} replaced the invitation.",
}
GROUP_CHANGED = "The group has changed: {detail}."

NOT_CSRF = "The form is too old. Load the page again, and send it once more."
NOT_ENTERED = (
    "This page opens by the link that “tidings handset --web” or “tidings up” prints at its start. It can be used once."
)
STALE = "This page may be out of date. It is connecting again."
ENDED = "The session has ended. Open a new link of the handset."
WRONG_HOST = "This page is not available under this name."
NOT_FOUND = "There is no such page."
TOO_LARGE = "The file is too large: at most 100 MB can be sent."
AWAY = "The network cannot be reached. Nothing was sent."
STORE_AWAY = "The chats on this machine cannot be read or written at the moment. Nothing was sent."
NO_SUCH_MESSAGE = "That message is no longer here."
NOT_A_NUMBER = "A phone number has 7 to 15 digits, such as +15550100001."
