"""Measurements of Tidings, and the harness that they share with the crash test."""
