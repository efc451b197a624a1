"""Alembic migrations: a folder for each family of tables, each with revisions 0001, 0002 … of its own."""
