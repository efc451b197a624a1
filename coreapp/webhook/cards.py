"""The people whom a message tells of, as the API and the webhook describe them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Words = Annotated[str, Meta(max_length=65_536)]


class _Part(msgspec.Struct, omit_defaults=True, gc=False):
    """Base of all parts: fields that we do not know are left out."""


class Name(_Part):
    formatted_name: Words
    first_name: Words | None = None
    last_name: Words | None = None
    middle_name: Words | None = None
    suffix: Words | None = None
    prefix: Words | None = None


class Address(_Part):
    street: Words | None = None
    city: Words | None = None
    state: Words | None = None
    zip: Words | None = None
    country: Words | None = None
    country_code: Words | None = None
    type: Words | None = None


class Email(_Part):
    email: Words | None = None
    type: Words | None = None


class Phone(_Part):
    phone: Words | None = None
    type: Words | None = None
    wa_id: Words | None = None


class Url(_Part):
    url: Words | None = None
    type: Words | None = None


class Messenger(_Part):
    service: Words | None = None
    user_id: Words | None = None


class Organisation(_Part):
    company: Words | None = None
    department: Words | None = None
    title: Words | None = None


class Card(_Part):
    """One person."""

    name: Name
    addresses: list[Address] | None = None
    birthday: Words | None = None
    emails: list[Email] | None = None
    org: Organisation | None = None
    phones: list[Phone] | None = None
    urls: list[Url] | None = None
    ims: list[Messenger] | None = None
