"""The RocketMQ client for trio: what users import."""
