"""File stores of the business family; see `tidings.storage.file_stores`."""

from tidings.storage import file_stores
from tidings.storage.business.tables import metadata

table = file_stores.define(metadata)
