"""Receiving: what `open_consumer` gives, from the pull of one queue to a handler for each message."""
