"""The replication protocol: the byte stream, what two rocketrio brokers exchange before it, and the HA status."""
