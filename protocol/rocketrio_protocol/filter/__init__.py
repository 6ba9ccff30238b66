"""Selects messages by an expression over their properties: SQL92 subscriptions.

    sql92.py      the grammar; compiles a text into a predicate over message properties
    operators.py  the operators, as closures
    values.py     how Java compares its strings, integers, doubles and booleans

Brokers select what they send to a subscription, and commands what they show (`--where`).
"""
