"""Access control: which requests a server executes.

`rocketrio_protocol.access.model` has users, their rights and the decision. A request's handler declares what it needs,
in the words of `needs.py`; `guard.py` asks both before any processor runs. `control.py` holds the current table of a
running server; `files.py` and `users_file.py` read it from files.
"""
