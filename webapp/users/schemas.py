"""What login takes and answers."""

from __future__ import annotations

import pydantic

from webapp.bodies import Body
from webapp.openapi import Meta


class Login(Body):
    """The body is optional; `new_password` replaces the password once the old one has been found right."""

    new_password: str | None = pydantic.Field(default=None, examples=["Tidings-2026!"])


class Token(pydantic.BaseModel):
    """`expires_after` as `2026-11-27 17:07:50+00:00`."""

    token: str
    expires_after: str = pydantic.Field(examples=["2026-11-27 17:07:50+00:00"])


class LoginAnswer(pydantic.BaseModel):
    """Exactly one element in `users`."""

    users: list[Token]
    meta: Meta
