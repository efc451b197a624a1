"""`/v1/account` and `/v1/settings/account`: the number's registration, its shards and its two-step PIN."""
