"""The client's view of one cluster: its name servers, routes, connections and heartbeats, and one method a request."""
