"""Messages that show products of a catalogue: one product, a list, or the whole catalogue."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from tidings.wire.codes import (
    CATALOG_MISSING,
    PARAMETER_MISSING,
    PARAMETER_NOT_REQUIRED,
    PRODUCT_COUNT,
    PRODUCTS_MISSING,
    SECTION_COUNT,
)
from webapp.api.messages.fields import PLAIN, absent_without
from webapp.api.messages.interactive.parts import BodyText, Footer, TextHeader
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import Length, Maybe, given

MAX_SECTIONS = 10
MAX_PRODUCTS = 30  # products in all sections together

RetailerId = Annotated[str, Length(100, empty=PRODUCTS_MISSING), PLAIN]
Catalog = Annotated[str, Length(100, empty=CATALOG_MISSING), PLAIN]


def _needs_catalog(catalog: str | None) -> None:
    if not catalog:
        raise refusal(CATALOG_MISSING, "catalog_id is missing")


def _refuse(value: object) -> None:
    if value is not None:
        raise refusal(PARAMETER_NOT_REQUIRED, "is not required in a message of this type")


class ProductAction(Body):
    model_config = pydantic.ConfigDict(json_schema_extra=given("catalog_id"))

    catalog_id: Catalog | None = None
    product_retailer_id: RetailerId

    @pydantic.model_validator(mode="after")
    def _has_catalog(self) -> ProductAction:
        _needs_catalog(self.catalog_id)
        return self


class ProductMessage(Body):
    """A message with one product. It has no header, and the body may be absent."""

    type: Literal["product"]
    header: Annotated[None, pydantic.BeforeValidator(_refuse)] = None
    body: Annotated[BodyText | None, *absent_without("text")] = None
    footer: Footer = None
    action: ProductAction


class ProductItem(Body):
    product_retailer_id: RetailerId


class ProductSection(Body):
    """A section. The title is required when there is more than one section."""

    title: Maybe[Annotated[str, Length(24)]] = None
    product_items: Annotated[
        list[ProductItem], pydantic.Field(json_schema_extra={"minItems": 1, "maxItems": MAX_PRODUCTS})
    ]


class ProductListAction(Body):
    """The products: at most 30 in all sections together."""

    model_config = pydantic.ConfigDict(json_schema_extra=given("catalog_id"))

    catalog_id: Catalog | None = None
    sections: Annotated[
        list[ProductSection], pydantic.Field(json_schema_extra={"minItems": 1, "maxItems": MAX_SECTIONS})
    ]

    @pydantic.model_validator(mode="after")
    def _counts(self) -> ProductListAction:
        _needs_catalog(self.catalog_id)
        if not 1 <= len(self.sections) <= MAX_SECTIONS:
            raise refusal(
                SECTION_COUNT,
                "sections has {count} entries, 1 to {most} are allowed",
                count=len(self.sections),
                most=MAX_SECTIONS,
            )
        for index, section in enumerate(self.sections):
            if not section.product_items:
                raise refusal(PRODUCTS_MISSING, "sections[{index}].product_items has no product", index=index)
            if len(self.sections) > 1 and not section.title:
                raise refusal(
                    PARAMETER_MISSING, "sections[{index}].title is missing, which several sections need", index=index
                )
        count = sum(len(section.product_items) for section in self.sections)
        if count > MAX_PRODUCTS:
            raise refusal(
                PRODUCT_COUNT,
                "sections has {count} products in all, the limit is {most}",
                count=count,
                most=MAX_PRODUCTS,
            )
        return self


class ProductListMessage(Body):
    type: Literal["product_list"]
    header: TextHeader
    body: BodyText
    footer: Footer = None
    action: ProductListAction


class CatalogParameters(Body):
    thumbnail_product_retailer_id: Maybe[RetailerId] = None


class CatalogAction(Body):
    name: Literal["catalog_message"]
    parameters: CatalogParameters | None = None


class CatalogMessage(Body):
    type: Literal["catalog_message"]
    header: TextHeader | None = None
    body: BodyText
    footer: Footer = None
    action: CatalogAction
