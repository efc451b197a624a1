"""Routing of envelopes, from their arrival to their recipient's acknowledgement, through memory or the mailbox."""
