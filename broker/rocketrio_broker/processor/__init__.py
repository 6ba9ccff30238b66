"""What a broker and a name server answer: one file a family of requests, each a table of code to method."""
