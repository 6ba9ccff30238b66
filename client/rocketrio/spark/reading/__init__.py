"""Reading topics: what a batch asks, plans, fetches and decodes; a stream uses the same for each of its batches."""
