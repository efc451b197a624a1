"""What goes wrong without an attacker, on real processes under load: power, clocks, descriptors, memory, partitions.

`make test-reliability` runs it. The books of `tests/crash` must balance after each.
"""
