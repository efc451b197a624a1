"""Metadata of all tables of the network family. Each module of the family adds its own tables."""

import sqlalchemy as sa

metadata = sa.MetaData()
