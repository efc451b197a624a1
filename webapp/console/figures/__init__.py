"""What the overview shows: processes, queues, rates, charts, and findings of `tidings doctor`."""
