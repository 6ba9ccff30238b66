"""The status table as people read it."""

import json

import attrs
from tests.client.cli.drawings import drawn
from tests.client.cli.rows import MASTER, SLAVE

from rocketrio.admin.cluster_status import NO_WRITES, BrokerStatus
from rocketrio.cli.cluster_table import STATUS, status_table
from rocketrio.cli.columns import row_of
from rocketrio_protocol.ha.status import LastWait


def shown(*statuses: BrokerStatus, width: int = 240) -> list[str]:
    """Draw the table of these brokers."""
    return drawn(status_table(statuses), width)


def test_a_copy_shows_its_progress() -> None:
    head, master, slave, *notes = shown(MASTER, SLAVE)
    assert head.split()[:4] == ["broker", "id", "role", "address"]
    assert master.split()[-3:] == ["-", "takes", "writes"]
    assert "3.0 GB" in slave
    assert "61.2 " in slave
    assert slave.endswith("following")
    assert "broker-a 1: 25% copied, 100.0 MB/s, 30 s left" in notes


def test_narrow_terminal_gets_the_fields_of_a_broker_below_each_other() -> None:
    lines = shown(MASTER, SLAVE, width=80)
    assert {"role     sync-master", "log end  4,000,000,000", "behind   3.0 GB"} <= {*lines}


def test_names_of_strangers_are_no_markup_and_cannot_steer_the_terminal() -> None:
    lines = shown(attrs.evolve(MASTER, broker_name="[bold]a\x1b[2J"))
    assert lines[1].startswith(r"[bold]a\x1b[2J  ")


def test_table_has_notes_on_what_sends_waited_for() -> None:
    told = "\n".join(shown(MASTER, SLAVE))
    assert (
        "broker-a 0: the last send that had to wait got PUT_OK after 2.0 ms for the disk and 1.5 ms for slaves"
        " (last report: 10.0.0.2:4)" in told
    )
    assert "broker-a 0: sends that waited were answered 1,200 PUT_OK\n" in told
    assert "broker-a 1: acknowledges what its disk has" in told


def test_send_without_a_slave_does_not_wait() -> None:
    nobody = attrs.evolve(
        MASTER, last_wait=LastWait(status="SLAVE_NOT_AVAILABLE", end_offset=9), answered=None
    )
    assert "the last send that had to wait got SLAVE_NOT_AVAILABLE at once" in shown(nobody)[-1]


def test_table_shows_problems_and_calls_missing_values_unknown() -> None:
    refusing = attrs.evolve(
        MASTER, state=NO_WRITES, problem="another live master", last_wait=None, answered=None
    )
    silent = attrs.evolve(
        SLAVE,
        state=None,
        follows=None,
        max_physical_offset=None,
        bytes_behind=None,
        seconds_behind=None,
        acknowledges=None,
    )
    _, master, slave, *notes = shown(refusing, silent)
    assert master.endswith("takes no writes")
    assert notes[-1] == "broker-a 0: another live master"
    assert slave.split().count("unknown") == 5


def test_why_readers_see_less_than_is_stored() -> None:
    level = attrs.evolve(MASTER, shown_physical_offset=4 * 10**9, shown_by="slaves")
    assert not any("readers see" in line for line in shown(level))
    waiting = attrs.evolve(level, shown_physical_offset=10**9)
    assert (
        "broker-a 0: readers see up to 1,000,000,000, 3.0 GB less than is stored:"
        " slaves have not acknowledged the rest yet"
    ) in shown(waiting)
    alone = attrs.evolve(level, shown_by="disk")
    assert (
        "broker-a 0: readers see up to 4,000,000,000:"
        " too few slaves keep up, so they see what the master's disk has"
    ) in shown(alone)


def test_json_has_the_same_with_stable_names() -> None:
    master, slave = json.loads(json.dumps([row_of(one, STATUS) for one in [MASTER, SLAVE]]))
    assert master.keys() == slave.keys()
    assert (slave["bytes_behind"], slave["seconds_left"], slave["problem"]) == (3 * 10**9, 30, None)
    assert master["last_wait"]["status"] == "PUT_OK"


def test_role_that_the_settings_do_not_name_is_shown() -> None:
    held = attrs.evolve(SLAVE, configured="async-master 0")
    assert "broker-a 1: holds slave 1, its settings say async-master 0" in shown(MASTER, held)
    as_set = attrs.evolve(SLAVE, configured="slave 1")
    assert not any("settings say" in line for line in shown(MASTER, as_set))
    (told,) = json.loads(json.dumps([row_of(one, STATUS) for one in [held]]))
    assert told["configured"] == "async-master 0"
