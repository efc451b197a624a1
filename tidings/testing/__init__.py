"""Test mode (`TIDINGS_TESTING=1`): numbers and faults by which a client has Tidings fail."""
