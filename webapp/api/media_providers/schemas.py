"""Request bodies and responses of the endpoint of media providers."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import pydantic

from tidings.egress import providers
from tidings.wire.codes import PARAMETER_INVALID
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import either
from webapp.http.openapi.document import Meta

MAX_PROVIDERS = 100
MAX_HOSTS = 100  # hosts of one provider


def _is_word(text: str) -> str:
    if not text.isprintable() or text != text.strip() or "/" in text:
        raise refusal(PARAMETER_INVALID, "should have printable characters only, no / and no blank at its ends")
    return text


def _fits_a_header(text: str) -> str:
    if not text.isprintable():
        raise refusal(PARAMETER_INVALID, "should have printable characters only")
    return text


def _is_host(text: str) -> str:
    try:
        providers.check_host(text)
    except ValueError as error:
        raise refusal(PARAMETER_INVALID, str(error)) from None
    return text


Host = Annotated[str, pydantic.Field(max_length=255, examples=["files.example.com"]), pydantic.AfterValidator(_is_host)]
Secret = Annotated[
    str, pydantic.Field(max_length=4096, examples=["Tidings-2026!"]), pydantic.AfterValidator(_fits_a_header)
]


class BasicCredentials(Body):
    """Credentials for HTTP Basic authentication."""

    username: Annotated[
        str, pydantic.Field(max_length=1024, examples=["files"]), pydantic.AfterValidator(_fits_a_header)
    ]
    password: Secret


class ProviderConfig(Body):
    """Credentials, either `basic` or `bearer`, and the hosts that may receive them.

    Without `hosts` only administrators may use the provider.
    """

    model_config = pydantic.ConfigDict(json_schema_extra=either("basic", "bearer"))

    basic: BasicCredentials | None = None
    bearer: Secret | None = pydantic.Field(default=None, examples=["a token"])
    hosts: Annotated[list[Host], pydantic.Field(min_length=1, max_length=MAX_HOSTS)] | None = None

    @pydantic.model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.basic is None) == (self.bearer is None):
            raise refusal(PARAMETER_INVALID, "should have either basic or bearer")
        return self


class MediaProvider(Body):
    """A media provider. Messages name it in `provider.name`, next to `link`."""

    name: Annotated[
        str, pydantic.Field(min_length=1, max_length=128, examples=["files"]), pydantic.AfterValidator(_is_word)
    ]
    type: Literal["www"]
    config: ProviderConfig


class MediaProviders(pydantic.RootModel[Annotated[list[MediaProvider], pydantic.Field(max_length=MAX_PROVIDERS)]]):
    """Media providers as a JSON array."""


class ProvidersMedia(pydantic.BaseModel):
    """Section of the response, nested as in the On-Premises API."""

    providers: list[MediaProvider]


class ProvidersApplication(pydantic.BaseModel):
    """Section of the response, nested as in the On-Premises API."""

    media: ProvidersMedia


class ProvidersSettings(pydantic.BaseModel):
    """Section of the response, nested as in the On-Premises API."""

    application: ProvidersApplication


class ProvidersResponse(pydantic.BaseModel):
    """Response with the providers and their credentials, for administrators."""

    settings: ProvidersSettings
    meta: Meta
