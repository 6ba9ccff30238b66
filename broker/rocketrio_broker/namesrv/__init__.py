"""The name server: which brokers serve which topics, and key-value settings for clients."""
