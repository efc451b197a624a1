"""What devices do over HTTP: register, leave keys, block others."""
