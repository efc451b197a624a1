"""The tables of the message network share one set of metadata; each module of the family adds its own."""

import sqlalchemy as sa

metadata = sa.MetaData()
