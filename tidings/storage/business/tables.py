"""Metadata of all tables of the business family, used by Webapps and Coreapps."""

from tidings.storage import file_stores, types

metadata = types.TableFamily()
file_stores.define(metadata)
