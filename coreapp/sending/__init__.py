"""From a job to the network's answer: encryption, transmission, read receipts."""
