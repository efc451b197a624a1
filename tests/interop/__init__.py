"""Conversations between our encryption and official releases of Signal's library, run as programs: `make
interop`."""
