"""Several network processes as one network: who of them is there, which device is on which, and what they say to each
other. All of it goes through Redis; envelopes wait in the database only."""
