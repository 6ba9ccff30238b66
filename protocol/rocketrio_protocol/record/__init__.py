"""The stored record: its layout, encoding, decoding, and what it is made of."""
