"""Registered devices as this process knows them: logins, key bundles, blocks, and checks for registered numbers."""
