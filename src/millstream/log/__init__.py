"""Records kept: topics, partitions, segments, offsets. Empty until the durable log comes."""
