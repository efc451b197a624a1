"""Metadata of all tables of the business family, used by Webapps and Coreapps."""

import sqlalchemy as sa

metadata = sa.MetaData()
