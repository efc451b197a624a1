"""Failures without an attacker, on real processes under load: power, clocks, descriptors, memory, partitions.

`make test-reliability` runs them. The ledger of `tests/crash` must balance after each.
"""
