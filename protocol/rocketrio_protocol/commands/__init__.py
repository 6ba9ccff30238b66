"""The headers of all requests and answers, one file a family; a request names the header and the body of its answer."""
