"""The FastAPI application: the routers, the layers around them, and what becomes of errors."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException

from tidings import __version__
from tidings.storage.database import DatabaseError
from webapp import envelope, instrumentation, openapi
from webapp.account.schemas import CodeRequest, ShardsChange, TwoStep, Verification
from webapp.application_settings.schemas import Changes
from webapp.backup.schemas import BackupRequest, RestoreRequest
from webapp.business_encryption.schemas import BusinessEncryption
from webapp.compliance.schemas import Compliance
from webapp.contacts.schemas import Acknowledgement, Contacts
from webapp.errors import APIError
from webapp.groups.schemas import Participants, Subject
from webapp.media_providers.schemas import MediaProviders
from webapp.messages.schemas import Marking, Message
from webapp.profile.schemas import About, BusinessProfile
from webapp.stickerpacks.schemas import NewSticker, NewStickerpack, StickerChange, StickerpackChange
from webapp.templates.importing import Import
from webapp.templates.schemas import Definition
from webapp.users.schemas import Login, NewPassword, NewUser

_BODIES = (
    About,
    Acknowledgement,
    BackupRequest,
    BusinessEncryption,
    BusinessProfile,
    Changes,
    CodeRequest,
    Compliance,
    Contacts,
    Definition,
    Import,
    Login,
    Marking,
    MediaProviders,
    Message,
    NewPassword,
    NewSticker,
    NewStickerpack,
    NewUser,
    Participants,
    RestoreRequest,
    ShardsChange,
    StickerChange,
    StickerpackChange,
    Subject,
    TwoStep,
    Verification,
)


def create(routers: Sequence[APIRouter], *, max_requests: int) -> FastAPI:
    """Serve `routers`, the busiest first."""
    app = FastAPI(
        title="Tidings",
        version=__version__,
        description="The WhatsApp Business On-Premises API (v1), served by Tidings.",
        redoc_url=None,
        redirect_slashes=False,
        responses=openapi.RESPONSES,
    )
    for router in routers:
        app.include_router(router)
    openapi.describe(app, _BODIES)
    app.add_exception_handler(APIError, envelope.answer_error)
    app.add_exception_handler(DatabaseError, envelope.answer_error)
    app.add_exception_handler(HTTPException, envelope.answer_http_exception)
    instrumentation.instrument(app)
    # Added last, so it is outside of everything else.
    app.add_middleware(envelope.Envelope, max_requests=max_requests)
    return app
