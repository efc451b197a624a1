"""What is known of recipients: contacts, sessions, identities, the 24-hour service window."""
