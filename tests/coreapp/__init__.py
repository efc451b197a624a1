"""Coreapp against a scripted network and a real webhook, on both kinds of database."""
