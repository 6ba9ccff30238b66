"""The commands `rocketrio check …`: lines, formats and exit codes."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.commands import commands, rocketrio

from rocketrio.cli import main

NOBODY = "127.0.0.1:1"


@pytest.mark.real
@pytest.mark.slow
async def test_checks_of_a_cluster_that_is_well_and_then_loses_its_master(tmp_path: Path) -> None:
    async with commands(slaves=1) as (cluster, run):
        assert (await run("topic", "create", "probe")).code == 0
        assert (await run("produce", "probe", stdin=b"1\n")).code == 0
        for check in ("connection", "health", "broker", "replication"):
            done = await run("check", check)
            assert (done.code, done.out.startswith(f"OK {check}: ")) == (0, True), done
        done = await run("check", "roundtrip", "--topic", "probe", "--milliseconds", "20000:30000")
        assert (done.code, "roundtrip_probe=" in done.out) == (0, True), done
        done = await run("check", "lag", "--group", "billing", "--once")
        assert (done.code, "no master knows the group" in done.out) == (3, True), done
        consumed = await run("consume", "probe", "--group", "billing", "--until-caught-up")
        assert consumed.code == 0
        done = await run("check", "lag", "--group", "billing", "--once", "--format", "json")
        (result,) = done.json
        assert (done.code, result["status"]) == (0, "OK"), done
        assert {each["name"]: each["value"] for each in result["values"]}["lag"] == 0

        state = tmp_path / "state.json"
        for _ in range(2):
            done = await run(
                "check", "dead-letters", "--group", "billing", "--state-file", str(state)
            )
            assert (done.code, json.loads(state.read_text())) == (0, {"billing": 0}), done

        outfile = tmp_path / "disk.prom"
        done = await run("check", "disk", "--format", "prometheus", "--outfile", str(outfile))
        assert (done.code, done.out) == (0, "")
        assert "rocketrio_check_disk_used{broker=" in outfile.read_text()
        assert not [each for each in os.listdir(tmp_path) if each.startswith(".")]

        await cluster.kill_master()
        done = await run("check", "broker", "broker-a")
        assert (done.code, done.out.split()[0]) == (2, "CRITICAL"), done
        assert "no master" in done.out


async def test_check_without_a_name_server() -> None:
    done = await rocketrio("check", "connection", "--namesrv", NOBODY)
    assert (done.code, done.out.split()[0]) == (2, "CRITICAL"), done
    done = await rocketrio("check", "disk", "--namesrv", NOBODY)
    assert (done.code, done.out.split()[0]) == (3, "UNKNOWN"), done
    done = await rocketrio("check", "disk", "--namesrv", NOBODY, "--format", "prometheus")
    assert (done.code, done.out) == (0, 'rocketrio_check_status{check="disk"} 3\n')


@pytest.mark.parametrize(
    "arguments",
    [
        ("disc",),
        ("disk", "--percent", "high"),
        ("dead-letters",),
        ("lag", "--group", "a b"),
        ("disk", "--namesrv", "x:y"),
    ],
)
def test_wrong_usage_of_a_check_is_unknown_and_not_critical(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, ["check", *arguments])
    assert done.exit_code == 3, done.output
    assert "Error: " in done.output


def test_state_file_that_holds_something_else_is_named(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text("[]")
    arguments = ["dead-letters", "--group", "g", "--state-file", str(state), "--namesrv", NOBODY]
    done = CliRunner().invoke(main, ["check", *arguments])
    assert done.exit_code == 3
    assert state.read_text() == "[]"
