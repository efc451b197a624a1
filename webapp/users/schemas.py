"""Bodies and answers of login and the administration of users."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic
from pydantic.config import JsonDict

from tidings.storage.business import users
from tidings.wire.codes import PARAMETER_INVALID
from webapp.bodies import Body, refusal
from webapp.constraints import Maybe
from webapp.openapi import Meta

Password = Annotated[
    str,
    pydantic.Field(
        examples=["Tidings-2026!"],
        description="8 to 64 characters with a digit, an upper-case and a lower-case letter, a punctuation character",
        json_schema_extra={"minLength": 8, "maxLength": 64, "format": "password"},
    ),
]


OldPassword = Annotated[str, pydantic.Field(examples=["Tidings-2026!"], json_schema_extra={"format": "password"})]


def _as_nothing(schema: JsonDict) -> None:
    schema |= {"type": ["object", "array", "string", "null"], "maxItems": 0, "maxLength": 0}


class Login(Body):
    """The body is optional; `new_password` replaces the password once the old one has been found right.

    `[]`, `""` and `null` are what clients in PHP and JavaScript send where they have nothing to say.
    """

    model_config = pydantic.ConfigDict(json_schema_extra=_as_nothing)

    new_password: Maybe[Password] = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _nothing_is_empty(cls, value: object) -> object:
        return {} if value is None or value == [] or value == "" else value


class Token(pydantic.BaseModel):
    """`expires_after` as `2026-11-27 17:07:50+00:00`."""

    token: str = pydantic.Field(examples=["eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJ1c2VyIjoiYWRtaW4ifQ.c2lnbmF0dXJl"])
    expires_after: str = pydantic.Field(examples=["2026-11-27 17:07:50+00:00"])


class LoginAnswer(pydantic.BaseModel):
    """Exactly one element in `users`."""

    users: list[Token]
    meta: Meta


def _is_addressable(name: str) -> str:
    # A colon would end the name in HTTP Basic authentication, the others would end it in a path.
    if not name.isprintable() or any(character in " :/?#%\\" for character in name):
        raise refusal(PARAMETER_INVALID, "should have printable characters only, no blanks, none of : / ? # % \\")
    return name


# As near as a pattern comes to `_is_addressable`: for letters beyond ASCII what is printable is not listed here.
_ADDRESSABLE = r"^[^\x00-\x20\x7f-\xa0:/?#%\\]*$"
Username = Annotated[
    str,
    pydantic.Field(min_length=4, max_length=32, examples=["observer"], json_schema_extra={"pattern": _ADDRESSABLE}),
    pydantic.AfterValidator(_is_addressable),
]


class NewUser(Body):
    """An ordinary user."""

    username: Username
    password: Password


class NewPassword(Body):
    """In place of the present one, which `old_password` repeats where a user changes its own with a token that is
    older than ten minutes."""

    password: Password
    old_password: Maybe[OldPassword] = None


class UserName(pydantic.BaseModel):
    """Who it was done to."""

    username: str = pydantic.Field(examples=["observer"])


class UserNameAnswer(pydantic.BaseModel):
    """Exactly one element in `users`."""

    users: list[UserName]
    meta: Meta


class UserEntry(pydantic.BaseModel):
    """`ROLES` is one string, in spite of its name."""

    ROLES: Literal["ROLE_ADMIN", "ROLE_USER"]
    username: str = pydantic.Field(examples=["observer"])


class UsersAnswer(pydantic.BaseModel):
    """The users asked for."""

    users: list[UserEntry]
    meta: Meta


def entry(user: users.User) -> dict[str, str]:
    """A user as it is answered."""
    return {"ROLES": "ROLE_ADMIN" if user.role == users.ADMIN else "ROLE_USER", "username": user.username}
