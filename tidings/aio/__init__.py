"""Parts of asynchronous programs: services, batches, queues, slots, token buckets, caches, clocks."""
