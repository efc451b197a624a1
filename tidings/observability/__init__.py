"""Logs, metrics, health, traces and profiles of a process, and its garbage collector."""
