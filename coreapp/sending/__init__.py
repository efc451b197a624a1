"""From a job to the network's response: encryption, transmission and read receipts."""
