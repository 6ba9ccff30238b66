"""Selects messages by an expression over their properties: SQL92 subscriptions.

    sql92.py      the grammar; compiles a text into a predicate over message properties
    operators.py  the operators, as closures
    values.py     how Java compares its strings, integers, doubles and booleans

It imports nothing of the broker, so that tests and tools can use `compile_sql92` alone.
"""
