"""The trio side of the protocol: ports, connections over sockets and streams, server, pool."""
