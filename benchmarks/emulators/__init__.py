"""Tidings beside another emulator of the Cloud API: features, start-up, rate, behaviour after a kill."""
