"""Routing of envelopes, from arrival to the recipient's acknowledgement, through memory or the mailbox."""
