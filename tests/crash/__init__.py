"""Crash tests: every process is killed repeatedly under load, and afterwards the ledger must balance."""
