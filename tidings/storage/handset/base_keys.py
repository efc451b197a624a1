"""Table of the base keys that handsets have accepted (see `tidings.storage.base_keys`)."""

from tidings.storage.base_keys import BaseKeyTable
from tidings.storage.handset.tables import metadata

BASE_KEYS = BaseKeyTable(metadata, "handset_base_keys")
