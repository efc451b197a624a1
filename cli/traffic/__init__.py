"""Traffic of an installation: its shape recorded and replayed, and a share of it sent to another installation."""
