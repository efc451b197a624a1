"""Tables of handsets that share one database: keys, sessions, inboxes and outboxes, groups, chats of pages."""
