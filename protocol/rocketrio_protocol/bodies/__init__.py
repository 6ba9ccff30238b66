"""Bodies of requests and answers, mostly JSON."""
