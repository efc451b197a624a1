"""Words of the pages, in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidings.storage.handset import chats

TITLE = "Handset"

# Labels of the templates.
SKIP = "Skip to the content"
COPIED = "The code is copied."
NOT_COPIED = "The browser does not let this page copy."
BACK_TO_CHATS = "Back to the chats"
MESSAGES_WITH = "Messages with"
OLDER = "Older messages"
NEWEST = "Newest messages"
ANSWER_TO = "Answer to"
NO_ANSWER = "Do not answer this message"
ATTACH = "Attach a file, or send another type"
FILE = "File"
SEND_AS = "Send it as"
OTHER_TYPES = "Location, contact, order and other types"
MESSAGE = "Message"
TYPE_HERE = "Type a message"
SEND = "Send"
GOES_OUT = "goes out with the next message."
ABOUT_GROUP = "About the group, and encryption"
ABOUT_PEER = "Safety number, and blocking"
ENTER = "Enter"
ENTER_ABOUT = "This link opens the phones of this machine in this browser for 12 hours. It can be used once."
OPEN_PHONES = "Open the phones"
BACK_TO_CHAT = "Back to the chat"
FORM = "Form"
FORM_ABOUT = (
    "A flow names its screens, which this phone does not have. Fill in the fields that came with it, and name others."
)
FIELD_NAME = "Name"
FIELD_VALUE = "Value"
SEND_FORM = "Send the form"
FIELD = "Field {number} (may stay empty)"
FORWARD = "Forward"
RECIPIENTS = "Recipients"
NUMBER = "Number"
OR_TO_CHAT = "Or to a chat"
CHATS_OF = "Chats of"
SETTINGS_OF = "Settings of"
NEW = "New chat or group"
ALL_PHONES = "All phones"
OPEN_NUMBERS = "Open phones"
CONNECTION = "Connection"
CHATS = "Chats"
ABOUT = "About"
PARTICIPANTS = "Participants"
JOIN_CODE = "Others join with the code"
SAFETY = "Safety number"
SAFETY_ABOUT = "If the other side shows the same digits, nobody is between you."
NO_SAFETY = "There is one after the first message."
ENCRYPTION = "Encryption"
LEAVE = "Leave the group"
IS_BLOCKED = "This number is blocked: the network drops what it sends."
UNBLOCK = "Unblock"
BLOCK = "Block"
IS_YOU = " (you)"
IS_ADMIN = ", admin"
OTHER_BROWSER = "Another browser"
THIS_BROWSER = "This browser"
LOG_OUT = "Log out"
LOG_OUT_ABOUT = "Ends the session of this browser. Open phones keep receiving messages."
LOGGED_OUT = "You are logged out"
LOGGED_OUT_ABOUT = "This browser no longer shows the phones of this machine. Open phones keep receiving messages."
FOR_OTHER_BROWSER = "For another browser"
LINK_ABOUT = "Open this link there. It can be used once, within 12 hours."
BACK_TO_PHONES = "Back to the phones"
AGAIN_HERE = "Use the number here again"
IS_OFF = "The phone is switched off."
SWITCH_ON = "Switch it on"
CONNECTING = "Connecting to the network."
IS_TYPING = "is typing"
UNREAD = "unread"
NO_CHATS = "No chats yet. Messages of others appear here, or"
START_ONE = "start one"
NO_MESSAGES = "No messages yet"
SEND_READ_ONE = "Send “read” for 1 message"
SEND_READ = "Send “read” for {count} messages"
SEND_TO = "Send to"
TYPES = "Types to send"
LOCATION = "Location"
LATITUDE = "Latitude"
LONGITUDE = "Longitude"
PLACE_NAME = "Name (may stay empty)"
ADDRESS = "Address (may stay empty)"
SEND_LOCATION = "Send the location"
CONTACT = "Contact"
CONTACT_NAME = "Name"
PHONE_NUMBER = "Phone number"
SEND_CONTACT = "Send the contact"
ORDER = "Order"
CATALOGUE = "Catalogue"
PRODUCTS = "Products, separated by spaces"
QUANTITY = "Quantity of each"
ORDER_WORDS = "Words (may stay empty)"
SEND_ORDER = "Send the order"
ABOUT_PRODUCT = "Question about a product"
PRODUCT = "Product"
QUESTION = "Question"
ASK = "Ask"
AFTER_AD = "First message after an advertisement"
AD_URL = "URL of the advertisement"
SEND_MESSAGE = "Send the message"
AS_FORWARDED = "Text, as if forwarded"
TEXT = "Text"
SEND_FORWARDED = "Send it as forwarded"
COMPLETED_FORM = "Completed form"
JSON = "JSON object"
NEW_NUMBER_NOTICE = "Notice of a new number, to this chat alone"
NEW_NUMBER = "New number"
SEND_NOTICE = "Send the notice"
WITHOUT_WORDS = "Without words"
SEND_EPHEMERAL = "Send a disappearing message"
SEND_UNKNOWN = "Send a type that nobody knows"
WRITE_TO = "Write to a number"
OPEN_CHAT = "Open the chat"
JOIN_GROUP = "Join a group"
GROUP_CODE = "Code, or a link that ends with it"
JOIN = "Join"
CREATE_GROUP = "Create a group"
SUBJECT = "Subject"
CREATE = "Create"
PHONES = "Phones"
CLOSE = "Close"
OPEN = "Open"
NO_NUMBERS = "No number is registered here yet."
ADD_NUMBER = "Add a number"
YOUR_NAME = "Your name, which businesses see (may stay empty)"
CODE = "Registration code, six digits"
REGISTER = "Register"
MAKE_LINK = "Make a link"
IS_CLOSED = "closed"
NOT_REGISTERED = "not registered"
PIN = "PIN of the registration lock"
PIN_IF_ANY = "PIN of the registration lock, if the number has one"
BY = "by"
OPTIONS = "Options for the message of"
ANSWER = "Answer"
UNREACT = "Remove the reaction"
DELETE = "Delete for everyone"
CARDS = "Cards"
OPENS_FORM = "opens a form"
UNTIL = "until"
SAVE_FILE = "Save"
EARLIER = "An earlier message"
CHOOSE = "Choose"
SEND_YOUR_LOCATION = "Send your location"
SEND_YOUR_CONTACT = "Send your contact details"
CHOOSE_CHAT = "Choose a chat, or start one. To receive a message here, send one to +{number}."
NOT_POSSIBLE = "Not possible"
THAT_NOT_POSSIBLE = "That is not possible"
SEND_AGAIN = "Send the form again"
LOAD_AGAIN = "Load the page again"
SETTINGS = "Settings"
IS_ON = "The phone is switched on"
IS_ON_ABOUT = "Off: messages wait in the network, and yours on this phone."
SENDS_READ = "Opening a chat sends “read”"
SENDS_READ_ABOUT = "Off: messages stay “delivered”, and a button in the chat sends “read”."
SAVE = "Save"
CHANGE_NUMBER = "Change the number"
CHANGE_NUMBER_ABOUT = (
    "Registers it on this page, and announces it in all chats with a number. This phone stays open until you close it."
)
CHANGE_TO = "Change to this number"
BLOCKED = "Blocked"
CLOSE_PHONE = "Close this phone"
SENT_AS: Mapping[str, str] = {
    "": "what it is",
    "document": "document",
    "voice": "voice message",
    "sticker": "sticker",
}

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
NEW_LINK = (
    "For a new link, stop “tidings handset --web” or “tidings up”, and start it again: it prints one at each start."
    f" A browser whose session has not ended makes one at the end of the list of phones, under “{OTHER_BROWSER}”."
)
NOT_ENTERED = f"This page opens by a link, which can be used once and within 12 hours. {NEW_LINK}"
FORWARDED = "Forwarded"
FORWARDED_OFTEN = "Forwarded many times"
OF_PRODUCT = "About the product {product}"
OF_ADVERTISEMENT = "After the advertisement {url}"
YOU = "You"
STATE_BY = "{state} by {people}"
NOT_SENT = "Not sent: {reason}."
GROUP_AWAY = "The network does not describe the group: {reason}."
CODE_PRINTED = "The network has printed a code for +{number} into its log. Type it here."
CODE_KNOWN = "{reason} Use that one."
SAVED = "Saved."
STOPPED = "The phone has stopped: {reason}."
REPLACED = "This number is now in use elsewhere."
UNKNOWN_NUMBER = "The network no longer knows this registration. Register the number again."
STALE = "This page may be out of date. It is connecting again."
ENDED = "The session has ended."
WRONG_HOST = "This page is not available under this name."
NOT_FOUND = "There is no such page."
DISK = "The file cannot be stored on this machine at the moment. Nothing was sent."
TOO_LARGE = "The file is too large: at most 100 MB can be sent."
AWAY = "The network cannot be reached. Nothing was sent."
STORE_AWAY = "The chats on this machine cannot be read or written at the moment. Nothing was sent."
NO_SUCH_MESSAGE = "That message is no longer here."
NOT_A_NUMBER = "A phone number has 7 to 15 digits, such as +15550100001."
