"""File stores of the network family; see `tidings.storage.file_stores`."""

from tidings.storage import file_stores
from tidings.storage.network.tables import metadata

table = file_stores.define(metadata)
