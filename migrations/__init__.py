"""Alembic migrations: a folder for each family of tables, each with revisions 0001, 0002 … of its own.

A migration that is killed goes on at the next run (`tidings.storage.migration_steps`), on MariaDB from where it was. So
its definitions must be the same at every run (no time of day in them), and Python reads only tables that the same
revision does not go on to rename or drop: copy by INSERT … SELECT, or drop in a later revision. Which rows a statement
changed is not to be asked.

From business 0027, network 0010 and handset 0005 on, a migration only expands: new tables, new columns that are
nullable or have a server default, new indexes that are not unique, longer strings. It declares the oldest program that
works on the tables after it:

    COMPATIBLE_FROM = "0026"

The value is a revision: that of the newest migration which that program has. `tidings migrate` records it in the
database, and a program of that revision or a later one starts on the tables, though it does not know the migration.
Without the declaration only programs that have the migration start.

A migration that contracts (drops or renames a table or a column, tightens a type, a constraint or NULL) comes one
release after the last program that needs what goes. Its `COMPATIBLE_FROM` is the first program that no longer does, so
that program needs a revision of its own: where its release has no migration, add an empty one. Programs that an earlier
migration excludes stay excluded. `tests/storage/test_migration_rules.py` compares the tables before and after each
migration. It cannot see what rows mean: a migration that changes rows in a form that earlier programs do not read is a
contraction, too.
"""
