"""The command `rocketrio doctor`: findings, exit codes, bundle."""

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.commands import commands, rocketrio

from rocketrio.admin import CODES
from rocketrio.cli import main

NOBODY = "127.0.0.1:1"


@pytest.mark.real
@pytest.mark.slow
async def test_doctor_of_a_cluster_that_is_well_and_then_loses_its_slave(tmp_path: Path) -> None:
    async with commands(slaves=1, auto_create_topic_enable=False) as (cluster, run):
        assert (await run("topic", "create", "orders")).code == 0
        done = await run("doctor")
        assert (done.code, done.out, done.err) == (
            0, "nothing is wrong with 2 brokers and 0 groups\n", ""
        )  # fmt: skip
        await cluster.slaves[0].kill()
        bundle = tmp_path / "case.tar.gz"
        done = await run("doctor", "--json", "--slaves", "1", "--bundle", str(bundle))
        [shown] = done.json
        assert (done.code, [one["code"] for one in shown["findings"]]) == (1, ["H01"]), done
        assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
        done = await run("doctor", "--slaves", "1", "--ignore", "H01")
        assert done.code == 0, done
        await cluster.kill_master()
        done = await run("doctor", "--once")
        assert (done.code, done.out) == (3, ""), done  # No broker is registered.


async def test_doctor_without_a_name_server_reports_that_it_could_not_ask() -> None:
    done = await rocketrio("doctor", "--namesrv", NOBODY)
    assert (done.code, done.out, done.err.count("\n")) == (3, "", 1), done


def test_list_has_each_code_and_asks_nothing() -> None:
    done = CliRunner().invoke(main, ["doctor", "--list", "--namesrv", NOBODY])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.output.splitlines()[1:]] == list(CODES)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--ignore", "X1"],
        ["--group", "a b"],
        ["--bundle", str(Path(__file__))],
        ["unexpected"],
        ["--columns", "no-such", "--list"],
    ],
)
def test_wrong_usage_ends_with_three_and_not_with_errors(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, ["doctor", *arguments, "--namesrv", NOBODY])
    assert (done.exit_code, "Error: " in done.output) == (3, True), done.output
