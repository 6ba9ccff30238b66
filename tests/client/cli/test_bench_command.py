"""The commands `rocketrio bench …`."""

import csv
import io

import pytest
import trio
from click.testing import CliRunner
from tests.support.commands import begin, commands, in_cluster, interrupted

from rocketrio.cli import main
from rocketrio_broker.embedded import EmbeddedCluster


@pytest.mark.real
@pytest.mark.slow
async def test_measurements_clean_up_also_after_an_interrupt() -> None:
    async with commands(slaves=1, auto_create_topic_enable=False) as (cluster, run):
        for kind in ("produce", "consume", "pingpong", "replication"):
            done = await run("bench", kind, "--messages", "30", "--json")
            [found] = done.json
            assert (done.code, found["what"], found["messages"]) == (0, kind, 30), done
            assert 0 < found["p50_seconds"] <= found["p999_seconds"] <= found["max_seconds"]
            assert (found["errors"], found["is_whole"]) == (0, True)
        done = await run("bench", "produce", "--messages", "9", "--keep", "--csv")
        [row] = csv.DictReader(io.StringIO(done.out))
        assert (row["messages"], row["is_whole"]) == ("9", "true"), done
        kept = done.err.split()[2].rstrip(",")
        done = await run("topic", "list", "--json")
        assert done.json == [[{"topic": kept}]]

        process = await begin(cluster, "bench", "produce", "--duration", "600", "--rate", "50")
        while len(await _topics(cluster)) < 2:  # noqa: ASYNC110
            await trio.sleep(0.1)
        await trio.sleep(1)
        code, out = await interrupted(process)
        assert code == 130
        assert b"messages/s" in out, out
        assert await _topics(cluster) == {kept}
        assert (await run("group", "list", "--json")).json == [[]]


async def _topics(cluster: EmbeddedCluster) -> set[str]:
    done = await in_cluster(cluster)("topic", "list", "--json")
    return {one["topic"] for one in done.json[0]}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--csv", "--json"],
        ["--messages", "0"],
        ["--rate", "0"],
        ["--size", "0"],
        ["--topic", "a b"],
    ],
)
def test_wrong_use_ends_with_two(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, ["bench", "produce", *arguments])
    assert done.exit_code == 2, done.output
