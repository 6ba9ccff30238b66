"""Transactions: a half message is parked, then delivered or dropped, as its producer decides.

    half messages       RMQ_SYS_TRANS_HALF_TOPIC      messages that are to be decided
    operations          RMQ_SYS_TRANS_OP_HALF_TOPIC   body: the queue offset of a half message that is decided
    progress            offsets of CID_RMQ_SYS_TRANS on both: all half messages before them are decided;
                        under queue id 1, which neither topic has: where both topics ended then

All of this is stored in the log and in consumerOffset.json, in Apache's form; `ledger.py` only keeps it in memory.
"""
