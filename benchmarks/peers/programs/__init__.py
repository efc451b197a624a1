"""Job queues of other projects, each a process that obeys orders. Run by the Python in build/peers, never imported."""
