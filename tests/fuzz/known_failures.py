"""Facts that the OpenAPI document cannot express: responses that look like failures of the run and are correct.

Nothing is excluded from the run: these requests are sent, and their responses are checked in every other respect.
"""

from __future__ import annotations

import dataclasses
import json
import re

ACCEPTED, REJECTED, SERVER_ERROR, NOT_GONE, NOT_AVAILABLE = "ST201", "ST202", "ST101", "ST301", "ST302"


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """Explanation of an apparent failure. The patterns are regular expressions."""

    failure: str  # schemathesis's code of it
    operation: str  # pattern of method and path
    details: str  # pattern of `details` in the response; empty for a success
    reason: str
    covered: str  # the tests that check these cases
    codes: str = ""  # pattern of `code` in the response; empty for a success
    sent: bytes = b""  # pattern of the request's body
    message: str = ""  # pattern of schemathesis's message


def _rejected(operation: str, details: str, reason: str, covered: str, codes: str = "") -> Known:
    return Known(REJECTED, operation, details, reason, covered, codes)


_STATE = "it depends on what is there"
_WORDS = "which characters are printable, no pattern says that every reader understands"

KNOWN: tuple[Known, ...] = (
    Known(
        SERVER_ERROR,
        "POST /v1/users",
        r"^Unable to create user\. Already exist\?$",
        "the On-Premises API responds with 500 with code 1014, and its clients look for that",
        "tests/webapp/test_users.py",
    ),
    _rejected("POST /v1/users", r"^Unable to create user\. Already exist\?$", _STATE, "tests/webapp/test_users.py"),
    _rejected(
        "(POST|PUT) /v1/users.*",
        "^(new_|old_)?password: should have at least one ",
        "a rule of four parts in one pattern is more than generators can follow",
        "tests/webapp/test_users.py",
    ),
    _rejected(
        "POST /v1/users", "^username: should have printable characters only", _WORDS, "tests/webapp/test_users.py"
    ),
    _rejected(
        "POST /v1/(messages|media)",
        "^Idempotency-Key: was used for a different request$",
        _STATE,
        "tests/webapp/test_idempotency.py",
    ),
    _rejected(
        "POST /v1/(account|account/shards)",
        "^pin: (is missing, two-step verification is on|.*two-step.*|is wrong.*)$",
        _STATE,
        "tests/webapp/test_account.py",
    ),
    _rejected(
        "PUT /v1/users/.*", "^old_password: is missing", "of one's own password alone", "tests/webapp/test_users.py"
    ),
    _rejected("POST /v1/account/verify", "^code: ", _STATE, "tests/webapp/test_account.py"),
    _rejected(
        "POST /v1/certificates/.*",
        "^certificate: ",
        "PEM with a meaning: keys that match, chains that hold",
        "tests/webapp/test_certificates.py",
    ),
    _rejected(
        "POST /v1/settings/business/whatsapp_business_encryption",
        "^business_public_key: ",
        "PEM with a meaning",
        "tests/webapp/test_business_encryption.py",
    ),
    _rejected(
        "POST /v1/settings/restore",
        "^(data|password): ",
        "it must have been made here",
        "tests/webapp/test_backup_checks.py",
    ),
    _rejected(
        "POST /v1/settings/profile/photo|POST /v1/groups/.*/icon",
        "^File: ",
        "pictures with a meaning",
        "tests/webapp/test_profile.py",
    ),
    Known(
        ACCEPTED,
        ".*",
        "^$",
        "a blank body is an empty one",
        "tests/webapp/test_bodies.py",
        codes="^$",
        sent=rb"^[ \t\r\n]+$",
    ),
    Known(
        ACCEPTED,
        "(POST|PUT) /v1/users(/.*)?",
        "^$",
        "the format of a password is a hint for programs that ask for one",
        "tests/webapp/test_users.py",
        codes="^$",
        message="violates `format` at /properties/(new_|old_)?password",
    ),
    Known(
        NOT_GONE,
        "GET /v1/groups/{group_id}/invite",
        "^$",
        "an invitation that is revoked gives way to a new one",
        "tests/coreapp/groups/test_group_requests.py",
        codes="^$",
    ),
    _rejected(
        "POST /v1/stickerpacks",
        "^stickerpacks: there are 200 packs, which is the limit$",
        _STATE,
        "tests/webapp/test_stickerpacks.py",
    ),
    _rejected(
        "POST /v1/stickerpacks/.*",
        "^stickers: the pack has 30 stickers, which is the limit$",
        _STATE,
        "tests/webapp/test_stickerpacks.py",
    ),
    _rejected(
        "POST /v1/configs/templates",
        "^name: a template .* already exists$",
        _STATE,
        "tests/webapp/test_templates.py",
    ),
    _rejected("POST /v1/media", "^body: ", "files that are what they say", "tests/webapp/test_media.py"),
    _rejected(
        "(POST|PATCH) /v1/configs/templates.*",
        r"^components.*: (should have one BODY|has two components of one type|has the variable "
        r"|should number its variables|has more than one variable|should have no variables"
        r"|should have its variable at the end|.* is missing, which )",
        "gaps are counted, components are compared",
        "tests/webapp/test_templates.py",
    ),
    _rejected(
        "(POST|PATCH) /v1/configs/templates.*",
        r"^components: (text is missing in (BODY|FOOTER)|should have (one button|nothing but|no FOOTER|a HEADER|a BODY)"
        r"|has a button of type OTP|has the variable )",
        "what components are to each other, to the category and to the format of parameters",
        "tests/webapp/test_templates.py",
    ),
    _rejected(
        "(POST|PATCH) /v1/configs/templates.*",
        r"^components\[[0-9]\]\.cards(: should have the same|\[[0-9]\]\.components: (has two|should have one HEADER))"
        r"|: (flow_id or flow_name|supported_apps) is missing, which|: zero_tap_terms_accepted should be",
        "cards that are compared, fields that need each other",
        "tests/webapp/test_templates.py",
    ),
    _rejected(
        "POST /v1/messages",
        r"^template\.namespace: is missing|^template\.components.*: index is missing, the template has",
        "it depends on the templates",
        "tests/webapp/test_message_types.py",
    ),
    _rejected(
        "POST /v1/configs/templates/import",
        r"^data\[[0-9]+\] ",
        "each line is a definition or is told why not",
        "tests/webapp/test_templates.py",
    ),
    _rejected(
        "(PATCH|DELETE) /v1/configs/templates/.*",
        "^name: should be the name of a template$",
        "a name that nothing can have",
        "tests/webapp/test_templates.py",
    ),
    _rejected(
        "PATCH /v1/configs/templates/.*",
        "^components: is missing$|^language, namespace: name one of|^category: that of an approved template",
        _STATE,
        "tests/webapp/test_templates.py",
    ),
    _rejected(
        "(POST|PATCH|DELETE|PUT) /v1/groups/.*",
        r"^wa_ids(\[[0-9]+\])?: |^subject: should have text",
        _STATE,
        "tests/webapp/test_groups.py",
    ),
    _rejected(
        "PUT /v1/contacts/.*/identity",
        "^hash: is not the hash of the contact's current identity$",
        _STATE,
        "tests/webapp/test_identity.py",
    ),
    _rejected(
        "POST /v1/settings/application/media/providers",
        "(should have printable characters only|should be a host, host:port|two providers have|has two )",
        _WORDS,
        "tests/webapp/test_media_providers.py",
    ),
    _rejected(
        "PATCH /v1/settings/application",
        r"^webhooks\.url: ",
        "host names and ports with a meaning, and where requests may go",
        "tests/webapp/test_application_settings.py",
    ),
    _rejected(
        "POST /v1/messages", "^to: should be a phone number", "a group's id is longer", "tests/webapp/test_messages.py"
    ),
    _rejected(
        "POST /v1/messages",
        r"^interactive\.action: (sections has |sections\[[0-9]+\]\.title is missing|buttons has two )"
        "|flow_action_payload is missing",
        "sums over lists, entries that are compared",
        "tests/webapp/test_message_types.py",
    ),
    _rejected(
        "POST /v1/messages",
        r"^(template|hsm)\b.*",
        "it depends on the template",
        "tests/webapp/test_message_types.py",
        "^2[0-9]{3}$",
    ),
    _rejected(
        "POST /v1/messages",
        r"^template\.components.*: names the same",
        "entries are compared",
        "tests/webapp/test_message_types.py",
    ),
    _rejected(
        "POST /v1/messages",
        "should be an absolute URL|should have no blanks around it|should be a date such as| as JSON, the limit is ",
        _WORDS,
        "tests/webapp/test_message_types.py",
    ),
    _rejected("POST /v1/messages", "^the recipient is not a valid user$", _STATE, "tests/webapp/test_messages.py"),
    _rejected(
        "POST /v1/messages",
        "there is no media provider with this name$",
        _STATE,
        "tests/webapp/test_message_types.py",
    ),
    Known(
        NOT_AVAILABLE,
        "(GET|DELETE) /v1/groups/{group_id}/icon",
        "^the group has no icon$",
        "a new group has none",
        "tests/webapp/test_groups.py",
    ),
    Known(
        NOT_AVAILABLE,
        "PUT /v1/messages/{message_id}",
        "^unknown message$",
        "what was sent is not what is marked as read; that is what came in",
        "tests/webapp/test_messages.py",
    ),
)


def find(failure: str, operation: str, sent: bytes, body: bytes, message: str = "") -> Known | None:
    """Return the entry that explains a failure, None if there is none. It must explain each error of the
    response."""
    try:
        response = json.loads(body)
        problems = [(str(problem["code"]), problem["details"]) for problem in response.get("errors", ())] or [("", "")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    entries = [
        entry
        for entry in KNOWN
        if entry.failure == failure
        and re.fullmatch(entry.operation, operation)
        and re.search(entry.sent, sent)
        and re.search(entry.message, message)
    ]
    found = [
        next((entry for entry in entries if re.search(entry.codes, code) and re.search(entry.details, details)), None)
        for code, details in problems
    ]
    return found[0] if found and all(found) else None
