"""Sending of jobs up to the network's response: encryption, transmission and read receipts."""
