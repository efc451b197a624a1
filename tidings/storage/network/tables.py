"""Metadata of all tables of the network family. Each module of the family adds its own tables."""

from tidings.storage import file_stores, types

metadata = types.TableFamily()
file_stores.define(metadata)
