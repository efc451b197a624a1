"""Traffic of an installation: recording and replay of its shape, and copying of a part to another installation."""
