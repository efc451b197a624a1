"""Ids by which the Cloud API names a number, its account, its app and its portfolio.

The ids are derived from numbers, so they need no storage and never change. Those of the WABA, the app and the portfolio
of a number derive from the number that owns the WABA, by default itself. Each has 16 digits, one more than a
telephone number, and its first digit tells its kind. An `IdentityDirectory` takes the identities of any number of
business numbers, and several of them may have the same `waba_id`.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Iterable, Sequence

LENGTH = 16  # digits of each derived id


class ObjectKind(enum.StrEnum):
    """Kind of object that an id names."""

    NUMBER = "number"
    WABA = "waba"
    APP = "app"
    BUSINESS = "business"
    TEMPLATE = "template"
    USER = "user"


_FIRST_DIGITS = {
    ObjectKind.NUMBER: "1",
    ObjectKind.WABA: "2",
    ObjectKind.APP: "3",
    ObjectKind.BUSINESS: "4",
    ObjectKind.TEMPLATE: "5",
    ObjectKind.USER: "6",
}


@dataclasses.dataclass(frozen=True, slots=True)
class NumberIdentity:
    """Ids of one business number and of the objects that it belongs to."""

    account: str  # the number, digits without `+`
    phone_number_id: str
    waba_id: str
    app_id: str
    business_id: str
    waba_owner: str  # number that the WABA, the app and the portfolio belong to; the number itself by default

    def owner_of(self, node: str) -> str:
        """Return the number that one of these ids belongs to."""
        return self.account if node == self.phone_number_id else self.waba_owner


def derive(account: str, waba_of: str = "") -> NumberIdentity:
    """Return the ids of a business number.

    waba_of: number whose WABA it belongs to; empty for its own
    """
    owner = waba_of or account
    return NumberIdentity(
        account,
        derived_id(ObjectKind.NUMBER, account),
        derived_id(ObjectKind.WABA, owner),
        derived_id(ObjectKind.APP, owner),
        derived_id(ObjectKind.BUSINESS, owner),
        owner,
    )


def derived_id(kind: ObjectKind, *parts: str) -> str:
    """Return the id of an object: the first digit of its kind, and 15 digits of a SHA-256 over `parts`."""
    digest = hashlib.sha256("\n".join((f"tidings cloud {kind}", *parts)).encode()).digest()
    return _FIRST_DIGITS[kind] + str(int.from_bytes(digest[:16]) % 10**15).zfill(15)


def template_id(account: str, namespace: str, name: str, language: str) -> str:
    """Return the id of a template in one language."""
    return derived_id(ObjectKind.TEMPLATE, account, namespace, name, language)


class IdentityDirectory:
    """Identities of an installation's business numbers, which may change."""

    def __init__(self, identities: Iterable[NumberIdentity]) -> None:
        self._by_account: dict[str, NumberIdentity] = {}
        self._kinds: dict[str, ObjectKind] = {}
        # By id: the numbers that the object belongs to.
        self._owners: dict[str, list[str]] = {}
        self.replace(identities)

    def replace(self, identities: Iterable[NumberIdentity]) -> None:
        """Take the identities of the present numbers; all others are unknown from now on."""
        self._by_account, self._kinds, self._owners = {}, {}, {}
        for identity in identities:
            self._by_account[identity.account] = identity
            kinds = {
                identity.phone_number_id: ObjectKind.NUMBER,
                identity.waba_id: ObjectKind.WABA,
                identity.app_id: ObjectKind.APP,
                identity.business_id: ObjectKind.BUSINESS,
            }
            self._kinds |= kinds
            for node in kinds:
                self._owners.setdefault(node, []).append(identity.account)

    def of(self, account: str) -> NumberIdentity:
        """Return the identity of a business number, which must be one of this installation."""
        return self._by_account[account]

    def find(self, account: str) -> NumberIdentity | None:
        """Return the identity of a business number; `None` for one that this installation does not have."""
        return self._by_account.get(account)

    def owner(self, node: str) -> str:
        """Return the first business number that an id's object belongs to; empty for none."""
        return next(iter(self._owners.get(node, ())), "")

    def accounts_of(self, node: str) -> Sequence[str]:
        """Return all business numbers that an id's object belongs to."""
        return tuple(self._owners.get(node, ()))

    def is_foreign(self, node: str, account: str) -> bool:
        """Return whether an id names an object of other numbers only."""
        owners = self._owners.get(node)
        return owners is not None and account not in owners

    def kind(self, node: str) -> ObjectKind | None:
        """Return the kind of object that an id names; `ObjectKind.TEMPLATE` for any id in the form of a template's.

        Returns `None` for other ids.
        """
        found = self._kinds.get(node)
        if found is None and len(node) == LENGTH and node[0] == _FIRST_DIGITS[ObjectKind.TEMPLATE]:
            return ObjectKind.TEMPLATE
        return found
