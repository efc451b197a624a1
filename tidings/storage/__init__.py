"""All SQL of Tidings: one module for each family of tables, one function for each question."""
