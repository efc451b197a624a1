"""The tables of the message network: its directory, pre-keys, mailboxes, blobs and groups."""
