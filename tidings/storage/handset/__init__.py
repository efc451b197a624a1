"""The tables of the devices that share one database: keys, sessions, inboxes and outboxes, groups."""
