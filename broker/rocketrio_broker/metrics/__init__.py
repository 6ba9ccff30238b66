"""Metrics for Prometheus: the names of Apache's brokers, and rocketrio's own beside them.

    counts.py         what is counted while the broker works, and only if metrics are on
    creations.py      times requests that create topics and groups
    group_lags.py     how far each group is, found when the page is read
    apache_names.py   families with Apache's names
    own_names.py      families with rocketrio's names
    page.py           puts the page together in short steps
    service.py        serves it

Nothing here is imported on the way of a message, and without `metrics_listen` nothing of it runs.
"""
