"""Who is connected to a broker: producers and consumers, their groups, their queue locks and their subscriptions."""
