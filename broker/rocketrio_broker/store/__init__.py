"""The message store: commit log, consume queues, key index; their recovery and retention.

`open_message_store` opens a data directory; everything else hangs on the `MessageStore` it gives.
Import direction: this folder knows `watermark` and the protocol, nothing of replication or requests.
"""
