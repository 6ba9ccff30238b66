"""A RocketMQ name server and broker on trio, with replication."""
