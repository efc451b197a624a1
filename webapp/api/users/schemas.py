"""Request bodies and responses of login and of the administration of users."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic
from pydantic.config import JsonDict

from tidings.storage.business import users
from tidings.wire.codes import PARAMETER_INVALID
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import Maybe
from webapp.http.openapi.document import Meta

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
    """Optional body of a login. `new_password` replaces the password after the present one was verified.

    `[]`, `""` and `null` are accepted because clients in PHP and JavaScript send them for an empty body.
    """

    model_config = pydantic.ConfigDict(json_schema_extra=_as_nothing)

    new_password: Maybe[Password] = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _nothing_is_empty(cls, value: object) -> object:
        return {} if value is None or value == [] or value == "" else value


class Token(pydantic.BaseModel):
    """A token. `expires_after` has the form `2026-11-27 17:07:50+00:00`."""

    token: str = pydantic.Field(examples=["eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJ1c2VyIjoiYWRtaW4ifQ.c2lnbmF0dXJl"])
    expires_after: str = pydantic.Field(examples=["2026-11-27 17:07:50+00:00"])


class LoginResponse(pydantic.BaseModel):
    """Response to a login. `users` has exactly one element."""

    users: list[Token]
    meta: Meta


def _is_addressable(name: str) -> str:
    # A colon would end the name in HTTP Basic authentication, the other characters would end it in a path.
    if not name.isprintable() or any(character in " :/?#%\\" for character in name):
        raise refusal(PARAMETER_INVALID, "should have printable characters only, no blanks, none of : / ? # % \\")
    return name


# Approximates `_is_addressable`: it does not list which characters beyond ASCII are printable.
_ADDRESSABLE = r"^[^\x00-\x20\x7f-\xa0:/?#%\\]*$"
Username = Annotated[
    str,
    pydantic.Field(min_length=4, max_length=32, examples=["observer"], json_schema_extra={"pattern": _ADDRESSABLE}),
    pydantic.AfterValidator(_is_addressable),
]


class NewUser(Body):
    """A new user without the rights of an administrator."""

    username: Username
    password: Password


class NewPassword(Body):
    """A new password.

    `old_password` is required when users change their own password with a token from a login more than 10 minutes
    ago.
    """

    password: Password
    old_password: Maybe[OldPassword] = None


class UserName(pydantic.BaseModel):
    """Name of the user that the request changed."""

    username: str = pydantic.Field(examples=["observer"])


class UserNameResponse(pydantic.BaseModel):
    """Response with a user's name. `users` has exactly one element."""

    users: list[UserName]
    meta: Meta


class UserEntry(pydantic.BaseModel):
    """A user. `ROLES` is one string in spite of its name."""

    ROLES: Literal["ROLE_ADMIN", "ROLE_USER"]
    username: str = pydantic.Field(examples=["observer"])


class UsersResponse(pydantic.BaseModel):
    """Response with the requested users."""

    users: list[UserEntry]
    meta: Meta


def entry(user: users.User) -> dict[str, str]:
    """Return a user as the API shows it."""
    return {"ROLES": "ROLE_ADMIN" if user.role == users.ADMIN else "ROLE_USER", "username": user.shown_name}
