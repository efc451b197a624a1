"""Template of a new installation: `hello_world`, which the first examples for the Cloud API send."""

from __future__ import annotations

from tidings.storage.business import templates
from tidings.storage.business.templates import TemplateRow


def make(account: str, now: int) -> TemplateRow:
    """Return the template, which has no parameters and is approved.

    now: Unix milliseconds
    """
    return TemplateRow(
        account=account,
        name="hello_world",
        language="en_US",
        namespace=templates.default_namespace(account),
        category="UTILITY",
        status=templates.APPROVED,
        components=[
            {"type": "HEADER", "format": "TEXT", "text": "Hello World"},
            {"type": "BODY", "text": "Welcome! This message shows that your business can start conversations."},
            {"type": "FOOTER", "text": "Sent with Tidings"},
        ],
        created_at=now,
    )
