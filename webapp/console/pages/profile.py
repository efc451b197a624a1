"""Profile of the number as recipients see it: about text, business fields, photo."""

from __future__ import annotations

from fastapi import Response

from tidings.pages import headers
from webapp.api.profile import schemas
from webapp.api.profile.schemas import About, BusinessProfile
from webapp.api.profile.service import ProfileService
from webapp.console.page_request import PageRequest, Result
from webapp.console.pages.saving import SAVED, save
from webapp.console.render.pages import PageContent
from webapp.http import bodies, pictures

PATH = "/console/settings/profile"
FIELDS = ("address", "description", "email", "vertical", "websites")


async def show(page: PageRequest) -> Result:
    """Show the profile."""
    return await _page(page, "", 200)


async def set_about(page: PageRequest) -> Result:
    """Set the text below the name of the business."""

    async def work() -> None:
        about = bodies.check(About, {"text": page.form.text("text")})
        await page.part(ProfileService).set_about(page.caller, about.text)

    return await save(page, PATH, work, _page)


async def set_business(page: PageRequest) -> Result:
    """Set the business fields, with the checks of `POST /v1/settings/business/profile`."""

    async def work() -> None:
        given: dict[str, object] = {name: page.form.text(name) for name in FIELDS}
        given["websites"] = page.form.text("websites").split()
        await page.part(ProfileService).set_business(page.caller, bodies.check(BusinessProfile, given))

    return await save(page, PATH, work, _page)


async def set_photo(page: PageRequest) -> Result:
    """Set the photo."""

    async def work() -> None:
        picture = pictures.check(page.form.file, schemas.MAX_PHOTO)
        await page.part(ProfileService).set_photo(page.caller, picture)

    return await save(page, PATH, work, _page)


async def delete_photo(page: PageRequest) -> Result:
    """Delete the photo."""
    return await save(page, PATH, lambda: page.part(ProfileService).delete_photo(page.caller), _page)


async def show_photo(page: PageRequest) -> Result:
    """Send the photo, which is never a document of our origin. Raises `InvalidRequest` when none is set."""
    photo = await page.part(ProfileService).photo(page.caller)
    name = f"photo.{photo.type.partition('/')[2]}"
    return Response(
        photo.content, media_type=photo.type, headers={**headers.of_file(name), "Cache-Control": "no-store"}
    )


async def _page(page: PageRequest, problem: str, status: int) -> PageContent:
    service = page.part(ProfileService)
    stored = await service.business(page.caller)
    business = {name: getattr(stored, name) for name in FIELDS}
    business["websites"] = "\n".join(stored.websites)
    # Refused values are shown again.
    given = page.form
    values = {
        "about": given.raw("text", await service.about(page.caller)),
        "business": {name: given.raw(name, value) for name, value in business.items()},
        "has_photo": await service.has_photo(page.caller),
        "problem": problem,
        "is_saved": page.query.is_set(SAVED),
    }
    return PageContent("profile.html", values, status)
