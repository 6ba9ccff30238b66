"""Message traces: what happened to each message, sent to a trace topic that consoles read."""
