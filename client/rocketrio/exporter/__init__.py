"""Shows a whole cluster to Prometheus from outside: `rocketrio exporter`, for brokers without a page of their own.

rounds.py       asks all brokers, again and again
details.py      asks for topics, groups and members one by one, spread over a minute
offsets.py      sums of offsets, and how fast they grow
runtime.py      reads the numbers in the texts that brokers answer to 28
names.py        writes what a round found under rocketrio's names; native_names.py and exporter_names.py under Apache's
service.py      serves the newest round
"""
