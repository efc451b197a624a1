"""Cooperation of several network processes (nodes) as one network: membership, presence of devices, and announcements.

Nodes coordinate through Redis and through direct links. Envelopes are stored in the database only.
"""
