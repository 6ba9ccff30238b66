"""Lets Spark find the format `rocketmq` without registration."""
