"""Table of the base keys that business numbers have accepted (see `tidings.storage.base_keys`)."""

from tidings.storage.base_keys import BaseKeyTable
from tidings.storage.business.tables import metadata

BASE_KEYS = BaseKeyTable(metadata, "base_keys")
