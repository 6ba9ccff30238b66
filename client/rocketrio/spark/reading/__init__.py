"""Reads topics: what a batch asks the brokers, plans, fetches and decodes; streams use it for each of their batches."""
