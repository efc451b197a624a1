"""Registered devices, as this process knows them: logins, key bundles, blocks, and who asks for whom."""
