"""Replication: `HAService` on the master accepts slaves, `HAClient` on a slave follows the master.

service             HAService: accepts slaves, one HAConnection each
connection          the master's end of the connection to one slave
exchange            the first messages between rocketrio brokers: who they are, which epochs their logs have
epochs              up to where two logs are the same by their epochs, and what may be cut off
open_epoch          opens an epoch on a broker that becomes master, after asking the other brokers
group_transfer      what enough slaves have: the address that synchronous puts wait for
live_slaves         which broker ids are connected, and so can be read from
known_slaves        remembers the slaves in a file, for a master that restarts together with its name servers
watch               logs slaves that stay behind, and sends that slaves did not acknowledge
level_clock         when a slave last had everything that its master had
client              HAClient: the slave's end, with its states and statistics
history             compares a slave's log with its master's on each connect, byte by byte
resync              what a slave does if its master's log is shorter, differs, or begins later
peers               single queries to name servers and to brokers of the same name
survey              asks all brokers of the name at once, and keeps their answers as values
judgement           what follows from the answers: who is master, who has more, who took over, who can take over
missing_tail        fetches what slaves have of the log and a new master lacks
torn_end            replaces damaged records at the end of a log by a peer's copies of them
second_history      detects slaves whose log is older than this new master's
copy_progress       how far a slave is with a long copy
places              limits the connections to the replication port, and chooses which one to close
link_security       authentication and encryption of replication connections
link_files          reads the secret and the certificates for that, and refuses unsafe ones
sealed              a connection on which every byte is authenticated
slave_synchronize   a slave's copies of topics, groups and offsets, over ordinary requests
offset_copy         which consumer offsets are copied, in both directions
gather_offsets      a new master fetches topics, groups and offsets that only its slaves know
master_address      where the master is, as a slave knows it
"""
