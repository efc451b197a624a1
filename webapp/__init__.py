"""Front end that serves the v1 API over HTTP, with its users and rate limits. It calls the Coreapps for the rest."""
