"""Users and their rights, and the decision whether a user may do something; without I/O.

Brokers decide by it, and the command `rocketrio acl` explains and imports by it.
"""
