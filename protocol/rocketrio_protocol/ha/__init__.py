"""The replication protocol: the byte stream, the exchange of two rocketrio brokers before it, and the HA status."""
