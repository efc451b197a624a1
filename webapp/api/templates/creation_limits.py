"""Limits on the templates that a client of the Cloud API creates, which apply with a review."""

from __future__ import annotations

import math

from tidings.storage.business import template_history, templates
from tidings.storage.business.template_history import HOUR_MS
from tidings.storage.business.templates import TemplateRow
from tidings.storage.database import Connection

MAX_TEMPLATES, MAX_PER_HOUR = 250, 100  # templates of an unverified portfolio's WABA; creations in 60 minutes


class CreationRefused(Exception):
    """The template cannot be created now."""


class TemplatesExhausted(CreationRefused):
    """The WABA has as many templates as it may have."""


class NameBlocked(CreationRefused):
    """A template of this name was deleted in the last 30 days."""


class CreationsExhausted(CreationRefused):
    """As many templates have been created in the last hour as may be.

    wait: seconds until the next one may be
    """

    def __init__(self, wait: int) -> None:
        super().__init__()
        self.wait = wait


async def admit(connection: Connection, added: TemplateRow, now: int) -> None:
    """Count the creation of a template that was added. Raises `CreationRefused`; the transaction is then to fail.

    now: time of the database's clock, Unix milliseconds
    """
    present = await templates.list_templates(connection, added.account)
    history = await template_history.find(connection, added.account, now)
    if added.name in history.deleted and sum(template.name == added.name for template in present) == 1:
        raise NameBlocked
    if len(present) > MAX_TEMPLATES:
        raise TemplatesExhausted
    if len(history.created) >= MAX_PER_HOUR:
        raise CreationsExhausted(math.ceil((history.created[0] + HOUR_MS - now) / 1000))
    await template_history.note_created(connection, added.account, now)
