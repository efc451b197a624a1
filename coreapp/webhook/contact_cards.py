"""Contact cards in messages, as the API and the webhook describe them."""

from __future__ import annotations

import msgspec

from coreapp.webhook.limits import Word


class _Part(msgspec.Struct, omit_defaults=True, gc=False):
    """Base of all parts. Unknown fields are dropped."""


class Name(_Part):
    formatted_name: Word
    first_name: Word | None = None
    last_name: Word | None = None
    middle_name: Word | None = None
    suffix: Word | None = None
    prefix: Word | None = None


class Address(_Part):
    street: Word | None = None
    city: Word | None = None
    state: Word | None = None
    zip: Word | None = None
    country: Word | None = None
    country_code: Word | None = None
    type: Word | None = None


class Email(_Part):
    email: Word | None = None
    type: Word | None = None


class Phone(_Part):
    phone: Word | None = None
    type: Word | None = None
    wa_id: Word | None = None


class Url(_Part):
    url: Word | None = None
    type: Word | None = None


class Messenger(_Part):
    service: Word | None = None
    user_id: Word | None = None


class Organisation(_Part):
    company: Word | None = None
    department: Word | None = None
    title: Word | None = None


class Card(_Part):
    """Contact card of one person."""

    name: Name
    addresses: list[Address] | None = None
    birthday: Word | None = None
    emails: list[Email] | None = None
    org: Organisation | None = None
    phones: list[Phone] | None = None
    urls: list[Url] | None = None
    ims: list[Messenger] | None = None
