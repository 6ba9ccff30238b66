"""The message store: commit log, consume queues, key index; their recovery and retention.

`open_message_store` opens a data directory and gives a `MessageStore`, through which all else is reached.
Import direction: this folder imports `watermark` and the protocol, and neither replication nor request handling.
"""
