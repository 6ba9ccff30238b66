"""Choosing messages by an expression over their properties: SQL92 subscriptions.

    sql92.py      the grammar, and from a text to what judges a message
    operators.py  what each operator does, as closures
    values.py     how Java compares its strings, integers, doubles and booleans

Imports nothing of the broker: tests, and whoever wants to try an expression, take `compile_sql92` as it is.
"""
