"""Transactions: what was parked as a half message is delivered, or never seen, as its producer decides.

    half messages       RMQ_SYS_TRANS_HALF_TOPIC      what is to be decided
    operations          RMQ_SYS_TRANS_OP_HALF_TOPIC   body: the queue offset of a half message that is decided
    progress            offsets of CID_RMQ_SYS_TRANS on both: before them nothing is open

All of it is in the log and in consumerOffset.json, in Apache's form; `ledger.py` only remembers it.
"""
