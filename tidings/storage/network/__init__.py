"""Tables of the message network: directory, pre-keys, mailboxes, blobs and groups."""
