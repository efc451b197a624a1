"""Content of a location message."""

from __future__ import annotations

from typing import Annotated

import pydantic

from webapp.api.messages.fields import Degrees
from webapp.http.bodies import Body
from webapp.http.constraints import Length, Maybe

Name = Maybe[Annotated[str, Length(1024)]]


class Location(Body):
    """A location in degrees, as numbers or strings. Handsets show `address` only together with `name`."""

    latitude: Annotated[float, Degrees(90), pydantic.Field(examples=[48.2082])]
    longitude: Annotated[float, Degrees(180), pydantic.Field(examples=[16.3738])]
    name: Name = None
    address: Name = None
