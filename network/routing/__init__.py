"""From the arrival of an envelope to the acknowledgement of its recipient, by memory or by the mailbox."""
