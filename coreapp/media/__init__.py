"""Files in transfer: those of messages to recipients and those that recipients sent; deletion of unused files."""
