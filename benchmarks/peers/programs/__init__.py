"""Job queues of others, each a process that obeys orders. Run by the Python in build/peers, and imported by nobody."""
