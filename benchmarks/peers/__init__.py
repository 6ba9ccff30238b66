"""What `bench_peers.py` is made of: the peers as processes, the same work for both, one line a comparison."""
