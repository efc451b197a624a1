"""The one collection of the tables that belong to a business: what Webapp and Coreapp keep."""

import sqlalchemy as sa

metadata = sa.MetaData()
