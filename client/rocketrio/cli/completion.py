"""The command `rocketrio completion`."""

import click
from click.shell_completion import get_completion_class

from rocketrio.cli.call import local
from rocketrio.cli.commands import Command


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@local
def completion(shell: str) -> None:
    """Print the script that lets bash, zsh or fish complete commands, options and names.

    Names of topics, groups and brokers come from the cluster that a command would use, if it answers within 0.3
    seconds, and are kept for half a minute.

    \b
    Examples:
      rocketrio completion bash > ~/.local/share/bash-completion/completions/rocketrio
      rocketrio completion zsh > ~/.zfunc/_rocketrio
      rocketrio completion fish > ~/.config/fish/completions/rocketrio.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "rocketrio", "_ROCKETRIO_COMPLETE").source())
