"""The commands `rocketrio export` and `apply`."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.commands import commands

from rocketrio.cli import main

NOBODY = "127.0.0.1:1"


@pytest.mark.real
@pytest.mark.slow
async def test_export_is_changed_shown_and_applied(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    async with commands() as (_, run):
        assert (await run("topic", "create", "orders", "--queues", "2")).code == 0
        done = await run("export", str(folder))
        assert (done.code, done.out) == (0, ""), done
        assert sorted(path.name for path in folder.iterdir()) == [
            "groups.toml", "kv.toml", "settings.toml", "topics.toml",
        ]  # fmt: skip
        done = await run("apply", str(folder), "--prune")
        assert (done.code, done.out) == (0, "nothing differs\n"), done

        file = folder / "topics.toml"
        file.write_text(file.read_text().replace("readQueueNums = 2", "readQueueNums = 4"))
        done = await run("apply", str(file), "--dry-run", "--json")
        [shown] = done.json
        assert (done.code, shown["changes"]) == (
            0,
            [
                {
                    "kind": "topics", "name": "orders", "at": "broker-a",
                    "change": "readQueueNums", "before": 2, "after": 4,
                    "is_done": False, "problem": None,
                }
            ],
        )  # fmt: skip
        assert (await run("topic", "create", "orders", "--queues", "3")).code == 0
        done = await run("apply", str(file), "--plan", shown["plan"])
        assert done.code == 4, done
        assert "nothing was changed" in done.err
        done = await run("apply", str(file))
        assert (done.code, "changes are done" in done.out) == (0, True), done
        done = await run("apply", "-", stdin=b"[[topics]]\nname='t'\nbrokers=['broker-x']")
        assert (done.code, "broker-x is not registered" in done.err) == (3, True), done
        done = await run("apply", "-", stdin=b"[[topics]]\nname='TBW102'")
        assert (done.code, "belongs to RocketMQ itself" in done.err) == (2, True), done


@pytest.mark.parametrize(
    ("text", "problem"),
    [("[[topics]]\nname = 1", "needs a name"), ("x", "topics.toml: "), ("[[kv]]", "namespace")],
)
def test_file_that_cannot_be_meant_is_wrong_usage(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "topics.toml"
    file.write_text(text)
    done = CliRunner().invoke(main, ["apply", str(file), "--namesrv", NOBODY])
    assert (done.exit_code, problem in done.output) == (2, True), done.output


def test_files_that_contradict_each_other_and_empty_folders_are_wrong_usage(tmp_path: Path) -> None:
    for name, queues in (("a", 1), ("b", 2)):
        text = f"[[topics]]\nname = 't'\nreadQueueNums = {queues}"
        (tmp_path / f"{name}.toml").write_text(text)
    done = CliRunner().invoke(main, ["apply", str(tmp_path), "--namesrv", NOBODY])
    assert (done.exit_code, "another file" in done.output) == (2, True), done.output
    empty = tmp_path / "empty"
    empty.mkdir()
    done = CliRunner().invoke(main, ["apply", str(empty), "--namesrv", NOBODY])
    assert (done.exit_code, "no .toml files" in done.output) == (2, True), done.output


def test_export_without_a_name_server_writes_nothing(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["export", str(tmp_path / "x"), "--namesrv", NOBODY])
    assert done.exit_code == 1
    assert not (tmp_path / "x").exists()
