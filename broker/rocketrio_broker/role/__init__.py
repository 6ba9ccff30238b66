"""What a broker is among the brokers of its name, and how that changes.

standing      the table: every standing, what it allows, and the events that lead to it
answering     refuses requests that only a broker in certain standings may answer
switchboard   makes store, gate, locks and registration do what the standing allows
service       RoleService: follows, or takes over and leads; changes between them
hand_over     a master changes places with a slave: the master's side
take_over     the slave's side of that
held_writes   keeps requests that write waiting while a hand-over decides who answers them
shared_id     gives up an id that another broker has too
file          stores the role for the next start
"""
