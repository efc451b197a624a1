"""Recovery from decryption failures: session repair, and repetition of messages in both directions."""
