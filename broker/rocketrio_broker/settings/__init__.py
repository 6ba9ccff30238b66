"""The settings of a broker: what each is, where its value comes from, and how administrators' tools see it."""
