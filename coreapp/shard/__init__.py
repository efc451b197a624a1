"""One Coreapp process and the shard that it owns: lease, wiring, and the link that Webapps connect to."""
