"""The RocketMQ protocol without I/O: frames, commands, messages, the replication stream."""
