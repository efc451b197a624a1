"""One Coreapp process and its shards: leases, wiring, and the link to Webapps."""
