"""Administration of a cluster: topics, groups, offsets, brokers and their replication."""
