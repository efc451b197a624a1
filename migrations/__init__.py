"""Alembic migrations: one folder per family of tables, each with its own revisions 0001, 0002 and so on.

A migration that is killed resumes at the next run (`tidings.storage.migration_steps`), on MariaDB at the statement
where it stopped. Therefore its definitions must be the same at every run (no time of day in them). Python may read
only tables that the same revision does not rename or drop afterwards: copy by INSERT … SELECT, or drop in a later
revision. A migration must not depend on the number of rows that a statement changed.

From business 0027, network 0010 and handset 0005 on, a migration only expands: new tables, new columns that are
nullable or have a server default, new indexes that are not unique, longer strings. It declares the oldest program that
works on the tables after it:

    COMPATIBLE_FROM = "0026"

The value is the revision of that program, which is its newest migration. `tidings migrate` records it in the database.
A program of that revision or a later one starts on the tables, although it does not know the migration. Without the
declaration only programs that have the migration start.

A migration that contracts (drops or renames a table or a column, tightens a type, a constraint or NULL) comes one
release after the last program that needs what it removes. Its `COMPATIBLE_FROM` is the first program that does not need
it. That program needs its own revision: if its release has no migration, add an empty one. Programs that an earlier
migration excludes stay excluded. `tests/storage/test_migration_rules.py` compares the tables before and after each
migration. It cannot see what rows mean: a migration that writes rows in a form that earlier programs cannot read is a
contraction, too.
"""
