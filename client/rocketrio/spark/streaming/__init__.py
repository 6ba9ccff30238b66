"""Reading a topic as it grows: positions, limits, and what brokers are told of a stream."""
