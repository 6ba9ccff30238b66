"""Receiving messages: everything behind `open_consumer`, from pulling one queue to calling a handler per message."""
