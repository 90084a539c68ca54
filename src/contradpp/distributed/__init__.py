"""The same trainer on several machines: shards of baskets, a small collective, and Ray to start and watch workers."""
