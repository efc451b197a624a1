"""Workloads on the network's device API: notifications, groups and broadcasts, very many connections."""
