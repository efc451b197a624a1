"""Contact cards in messages, as the API and the webhook describe them."""

from __future__ import annotations

import msgspec

from coreapp.webhook.limits import Word


class _Part(msgspec.Struct, omit_defaults=True, gc=False):
    """Base of all parts. Unknown fields are dropped."""


class CardName(_Part):
    formatted_name: Word
    first_name: Word | None = None
    last_name: Word | None = None
    middle_name: Word | None = None
    suffix: Word | None = None
    prefix: Word | None = None


class CardAddress(_Part):
    street: Word | None = None
    city: Word | None = None
    state: Word | None = None
    zip: Word | None = None
    country: Word | None = None
    country_code: Word | None = None
    type: Word | None = None


class CardEmail(_Part):
    email: Word | None = None
    type: Word | None = None


class CardPhone(_Part):
    phone: Word | None = None
    type: Word | None = None
    wa_id: Word | None = None


class CardUrl(_Part):
    url: Word | None = None
    type: Word | None = None


class CardMessenger(_Part):
    service: Word | None = None
    user_id: Word | None = None


class CardOrganisation(_Part):
    company: Word | None = None
    department: Word | None = None
    title: Word | None = None


class ContactCard(_Part):
    """Contact card of one person."""

    name: CardName
    addresses: list[CardAddress] | None = None
    birthday: Word | None = None
    emails: list[CardEmail] | None = None
    org: CardOrganisation | None = None
    phones: list[CardPhone] | None = None
    urls: list[CardUrl] | None = None
    ims: list[CardMessenger] | None = None
