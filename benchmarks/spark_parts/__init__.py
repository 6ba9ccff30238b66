"""What the benchmarks of Spark share: clusters, topics, sessions, and what they are compared with."""
