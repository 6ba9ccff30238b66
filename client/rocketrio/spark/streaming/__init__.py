"""Reads a topic as a stream: positions, limits, and the progress that is reported to brokers."""
