"""The one writer of a shard: changes, their rows, and the transactions that commit them."""
