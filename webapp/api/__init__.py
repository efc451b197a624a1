"""Resources of the API: one package or module for each, with its routes, schemas and service."""
