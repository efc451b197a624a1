"""Every page and form of the console: method, path, handler and required role."""

from __future__ import annotations

from collections.abc import Sequence

from webapp.api.profile import schemas
from webapp.console.page_request import ConsoleRoute, RequiredRole
from webapp.console.pages import (
    application,
    callbacks,
    certificates,
    codes,
    faults,
    login,
    media,
    message_templates,
    messages,
    overview,
    profile,
    settings,
    signature,
    try_it,
)
from webapp.console.render import pages

_OPEN, _OPERATOR = RequiredRole.NONE, RequiredRole.OPERATOR
_TEMPLATE = "/console/templates/{namespace}/{name}/{language}"

ROUTES: Sequence[ConsoleRoute] = (
    ConsoleRoute("GET", "/console/login", login.show, _OPEN),
    ConsoleRoute("POST", "/console/login", login.log_in, _OPEN),
    ConsoleRoute("GET", "/console/enter", login.show_entry, _OPEN),
    ConsoleRoute("POST", "/console/enter", login.enter, _OPEN),
    ConsoleRoute("GET", "/console/first-password", login.show_first_password, _OPEN),
    ConsoleRoute("POST", "/console/first-password", login.set_first_password, _OPEN),
    ConsoleRoute("POST", "/console/logout", login.log_out),
    ConsoleRoute("GET", "/console", overview.show, is_live=True),
    ConsoleRoute("POST", "/console/doctor", overview.run_doctor, _OPERATOR),
    ConsoleRoute("GET", "/console/messages", messages.show_list, is_live=True),
    ConsoleRoute("GET", "/console/messages/{id}", messages.show_one, is_live=True),
    ConsoleRoute("POST", "/console/messages/{id}/content", messages.show_content),
    ConsoleRoute("GET", "/console/codes", codes.show),
    ConsoleRoute("GET", "/console/callbacks", callbacks.show_list, is_live=True),
    ConsoleRoute("POST", "/console/callbacks/replay", callbacks.replay_selected),
    ConsoleRoute("GET", "/console/callbacks/change", callbacks.confirm, is_exclusive=True),
    ConsoleRoute("POST", "/console/callbacks/change", callbacks.change_all, is_exclusive=True),
    ConsoleRoute("GET", "/console/callbacks/changes/{id}", callbacks.show_change, is_live=True),
    ConsoleRoute("POST", "/console/callbacks/changes/{id}/stop", callbacks.stop_change),
    ConsoleRoute("GET", "/console/callbacks/audit", callbacks.show_audit, is_live=True),
    ConsoleRoute("GET", "/console/callbacks/signature", signature.show),
    ConsoleRoute("POST", "/console/callbacks/signature", signature.check),
    ConsoleRoute("GET", "/console/callbacks/{seq}", callbacks.show_one, is_live=True),
    ConsoleRoute("POST", "/console/callbacks/{seq}/body", callbacks.show_body),
    ConsoleRoute("GET", "/console/templates", message_templates.show_list, is_live=True),
    ConsoleRoute("POST", "/console/templates/import", message_templates.import_all),
    ConsoleRoute("POST", "/console/templates/check", message_templates.check),
    ConsoleRoute("GET", "/console/templates/new", message_templates.show_new),
    ConsoleRoute("POST", "/console/templates/new", message_templates.create),
    ConsoleRoute("GET", _TEMPLATE, message_templates.show_one),
    ConsoleRoute("POST", _TEMPLATE, message_templates.change),
    ConsoleRoute("POST", f"{_TEMPLATE}/decision", message_templates.decide),
    ConsoleRoute("POST", f"{_TEMPLATE}/delete", message_templates.delete),
    ConsoleRoute("GET", "/console/try-it", try_it.show),
    ConsoleRoute("POST", "/console/try-it", try_it.send),
    ConsoleRoute("GET", "/console/settings", settings.show),
    ConsoleRoute("POST", "/console/settings/webhook", settings.change_webhook),
    ConsoleRoute("POST", "/console/settings/test", settings.test_webhook, _OPERATOR),
    ConsoleRoute("POST", "/console/settings/users", settings.create_user),
    ConsoleRoute("POST", "/console/settings/password", settings.set_password),
    ConsoleRoute("POST", "/console/settings/tokens", settings.end_tokens),
    ConsoleRoute("POST", "/console/settings/delete-user", settings.delete_user),
    ConsoleRoute("POST", "/console/settings/number", settings.change_number, _OPERATOR),
    ConsoleRoute("GET", certificates.PATH, certificates.show),
    ConsoleRoute("POST", f"{certificates.PATH}/api", certificates.set_api, _OPERATOR),
    ConsoleRoute("POST", f"{certificates.PATH}/webhook", certificates.set_webhook),
    ConsoleRoute("POST", f"{certificates.PATH}/delete-webhook", certificates.delete_webhook),
    ConsoleRoute("GET", media.PATH, media.show),
    ConsoleRoute("POST", media.PATH, media.add),
    ConsoleRoute("POST", f"{media.PATH}/delete", media.delete),
    ConsoleRoute("GET", application.PATH, application.show),
    ConsoleRoute("POST", application.PATH, application.change),
    ConsoleRoute("GET", profile.PATH, profile.show),
    ConsoleRoute("POST", f"{profile.PATH}/about", profile.set_about),
    ConsoleRoute("POST", f"{profile.PATH}/business", profile.set_business),
    ConsoleRoute("GET", f"{profile.PATH}/photo", profile.show_photo),
    ConsoleRoute("POST", f"{profile.PATH}/photo", profile.set_photo, max_file=schemas.MAX_PHOTO),
    ConsoleRoute("POST", f"{profile.PATH}/delete-photo", profile.delete_photo),
    ConsoleRoute("GET", "/console/faults", faults.show, _OPERATOR, is_live=True),
    ConsoleRoute("POST", "/console/faults", faults.add, _OPERATOR),
    ConsoleRoute("POST", "/console/faults/delete", faults.delete, _OPERATOR),
    ConsoleRoute("POST", "/console/faults/clear", faults.clear, _OPERATOR),
)

_MENU = (
    ("/console", "overview"),
    ("/console/messages", "messages"),
    ("/console/callbacks", "callbacks"),
    ("/console/templates", "templates"),
    ("/console/try-it", "try_it"),
    ("/console/settings", "settings"),
    ("/console/faults", "faults"),
)


def menu(*, is_testing: bool) -> Sequence[tuple[str, str]]:
    """Return path and name of the pages in the menu.

    is_testing: include the pages of the test mode
    """
    return [(path, pages.text("menu", name)) for path, name in _MENU if is_testing or name != "faults"]
