"""The REST front end: the v1 API over HTTP, its users and its limits; everything else it asks of the Coreapp."""
