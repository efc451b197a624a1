"""The recipients: what a phone does, as a library, as robots for tests and as a terminal."""
