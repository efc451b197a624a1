"""Files on their way: those of messages to recipients, those that recipients sent, and those that nobody uses."""
