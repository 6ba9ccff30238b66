"""`rocketrio broker` and `rocketrio cluster status` as scripts use them: fields and exit codes."""

import json
import logging

import pytest
from click.testing import CliRunner
from tests.support.commands import begin, commands, interrupted, printed

from rocketrio.cli import main


@pytest.mark.parametrize(
    "arguments",
    [
        ("broker", "role", "h:x", "slave", "--id", "1"),
        ("broker", "role", "h:1", "slave"),
        ("broker", "role", "h:1", "slave", "--id", "0"),
        ("broker", "role", "h:1", "async-master", "--id", "1"),
        ("broker", "role", "h:1", "leader"),
        ("broker", "hand-over"),
        ("broker", "hand-over", "broker-a", "--to", "0"),
        ("broker", "settings", "h:1", "slaveReadEnable"),
        ("broker", "settings", "h:1", "=x"),
        ("broker", "verify", "h:1", "--rate", "0"),
        ("cluster", "status", "--every", "1"),
        ("cluster", "status", "--broker", "h"),
        ("cluster", "events", "--since", "soon"),
    ],
)
def test_wrong_use_ends_with_two(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "Usage:" in done.output


@pytest.mark.real
async def test_roles_status_and_settings_by_command() -> None:
    async with commands(slaves=1) as (cluster, run):
        addr = cluster.master.broker.address
        done = await run("broker", "role", addr, "sync-master")
        assert (done.code, done.err) == (0, "")
        assert done.out == f"{addr} is sync-master now, with id 0\n"
        done = await run("produce", "orders", "--count", "3")
        assert done.code == 0
        done = await run("cluster", "status", "--json")
        [[master, slave]] = done.json
        assert (master["role"], master["state"]) == ("sync-master", "takes writes")
        assert master["answered"]["PUT_OK"] >= 1
        assert master["last_wait"]["slave_seconds"] > 0
        assert slave["follows"] == cluster.master.broker.ha_address
        assert (slave["state"], slave["bytes_behind"]) == ("following", 0)
        done = await run("cluster", "status")
        assert done.code == 0
        assert "the last send that had to wait got PUT_OK" in done.out
        assert done.out.split()[:4] == ["broker", "id", "role", "address"]

        done = await run("broker", "settings", addr, "slaveReadEnable=true", "--json")
        assert done.json == [{"slaveReadEnable": "true"}]
        done = await run("broker", "settings", "broker-a", "slaveReadEnable=true")
        assert (done.code, done.out) == (2, "")
        assert f"broker-a is the name of 2 brokers: give one of {addr}, " in done.err
        done = await run("broker", "settings", addr)
        assert "brokerRole" in done.out
        assert "SYNC_MASTER" in done.out
        done = await run("broker", "settings", addr, "noSuchThing=1")
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        done = await run("broker", "role", cluster.slaves[0].broker.address, "async-master")
        assert (done.code, done.out) == (1, "")
        assert "remains a slave: broker-a has another live master" in done.err
        done = await run("cluster", "status", "--json")
        assert [one["role"] for one in done.json[0]] == ["sync-master", "slave"]
        done = await run("broker", "role", cluster.name_servers[0], "async-master")
        assert (done.code, done.out) == (1, "")
        assert "does not change its role while it runs" in done.err


@pytest.mark.real
async def test_pair_changes_places_by_command() -> None:
    async with commands(slaves=1, role="sync-master") as (cluster, run):
        first, second = cluster.master.broker.address, cluster.slaves[0].broker.address
        assert (await run("produce", "orders", "--count", "3")).code == 0
        done = await run("broker", "hand-over", "broker-a", "--dry-run")
        assert (done.code, done.err) == (0, "")
        assert done.out == (
            f"slave 1 at {second} would become master of broker-a, {first} its slave 1; it is 0 B behind\n"
        )
        done = await run("broker", "hand-over", "broker-a")
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith(f"{second} is master of broker-a now, {first} its slave 1; ")
        [[master, slave]] = (await run("cluster", "status", "--json")).json
        assert (master["address"], master["role"]) == (second, "sync-master")
        assert (slave["address"], slave["configured"]) == (first, "sync-master 0")
        assert (await run("produce", "orders", "--count", "3")).code == 0
        done = await run("broker", "hand-over", "broker-a", "--to", "1", "--json")
        [told] = done.json
        assert (told["new_address"], told["slave_id"]) == (first, 1)
        assert 0 < told["seconds"] < 1
        for arguments, reason in (
            (
                ("broker-x",),
                "broker 'broker-x' is not registered; registered brokers: broker-a",
            ),
            (("broker-a", "--to", "7"), f"has no slave 7; the name servers list 1 at {second}"),
        ):
            done = await run("broker", "hand-over", *arguments)
            assert (done.code, done.out) == (1, "")
            assert reason in done.err


@pytest.mark.real
async def test_watch_prints_one_status_after_the_other_until_interrupted() -> None:
    async with commands() as (cluster, _):
        watch = ("cluster", "status", "--watch", "--every", "0.1", "--json")
        process = await begin(cluster, *watch)
        told = await printed(process, 3)
        code, _ = await interrupted(process)
        assert code == 0
    looks = [json.loads(line) for line in told.splitlines()[:3]]
    assert all(look[0]["state"] == "takes writes" for look in looks)


@pytest.mark.real
async def test_verify_finds_what_a_disk_changed_on_a_slave() -> None:
    async with commands(slaves=1) as (cluster, run):
        slave = cluster.slaves[0].broker
        done = await run("produce", "orders", "--count", "30")
        assert done.code == 0
        done = await run("broker", "verify", "broker-a")
        assert (done.code, done.err) == (0, "")
        assert done.out.count("0 problems") == 2
        assert f"compared with {cluster.master.broker.address}: " in done.out
        # The queue offset of the last record: no checksum covers it, and no entry of its own tells.
        queue = next(iter(slave.store.queues()["orders"].values()))
        entry = queue.entry(queue.max_offset - 1)
        assert entry is not None
        slave.store.commit_log.files.files[0].mapping[entry[0] + 27] ^= 1
        done = await run("broker", "verify", slave.address, "--json")
        assert done.code == 1
        [[told]] = done.json
        assert told["problem_count"] == 2
        end = slave.store.max_physical_offset
        assert (told["min_physical_offset"], told["max_physical_offset"]) == (0, end)
        assert told["compared_with"] == cluster.master.broker.address
        assert told["problems"][0]["physical_offset"] == entry[0]
        assert "the record says it is message" in told["problems"][0]["problem"]
        assert "differs from that of the master" in told["problems"][1]["problem"]
        assert f"the log is not as it should be at {slave.address}" in done.err
        done = await run("cluster", "status")
        assert "the check of the log found 2 problems" in done.out.replace("\n", " ")
        done = await run("broker", "verify", "no-such-name")
        assert (done.code, done.out) == (1, "")
        assert "known names: broker-a" in done.err


@pytest.mark.real
async def test_events_are_lines_and_json(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with commands(slaves=1) as (_, run):
        logging.getLogger("rocketrio_broker.test").error("clock jumped by=%s", "a b\nc")
        done = await run("cluster", "events", "--kind", "clock")
        assert (done.code, done.err) == (0, "")
        assert done.out.count("\n") == 1
        assert done.out.endswith('clock: clock jumped by="a b\\nc"\n')
        done = await run("cluster", "events", "--since", "-1h", "--json")
        events = {event["event"]: event for event in done.json}
        assert events["clock jumped"]["values"] == {"by": "a b\nc"}
        assert events["serving"]["kind"] == "process"
        done = await run("cluster", "events", "--since", "2099-01-01")
        assert (done.code, done.out) == (0, "")
