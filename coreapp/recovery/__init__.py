"""Repairing sessions, and sending again what could not be decrypted: what we lost, and what others did."""
