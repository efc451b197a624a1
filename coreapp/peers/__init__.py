"""State of recipients: contacts, sessions, identities and the 24-hour service window."""
