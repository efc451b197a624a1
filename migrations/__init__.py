"""Alembic migrations: a folder for each family of tables, each with revisions 0001, 0002 … of its own.

A migration that is killed goes on at the next run (`tidings.storage.migration_steps`), on MariaDB from where it was. So
its definitions must be the same at every run (no time of day in them), and Python reads only tables that the same
revision does not go on to rename or drop: copy by INSERT … SELECT, or drop in a later revision. Which rows a statement
changed is not to be asked.
"""
