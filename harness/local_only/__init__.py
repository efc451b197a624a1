"""Check that nothing leaves this machine: no public name is looked up, and no public address is called.

`sitecustomize` has all of it, because Python processes that tests start import it from `PYTHONPATH`.
"""
