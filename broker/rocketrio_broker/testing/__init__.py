"""What tests run a cluster on, in place of the network of the machine."""
