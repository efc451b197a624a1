"""Figures of the overview: processes, queues, rates, charts, and findings of `tidings doctor`."""
