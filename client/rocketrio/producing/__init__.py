"""Sending: what `open_producer` gives, single messages, pipelines, transactions and requests."""
