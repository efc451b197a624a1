"""Workloads on the network's device links: notifications, groups and broadcasts, very many connections."""
