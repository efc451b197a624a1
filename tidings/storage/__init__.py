"""All SQL of Tidings: one module per family of tables, one function per query."""
