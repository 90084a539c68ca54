"""`contradpp completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in SHELL; put the line for yours into its start-up file.

    \b
    bash   eval "$(contradpp completion bash)"     in ~/.bashrc
    zsh    eval "$(contradpp completion zsh)"      in ~/.zshrc
    fish   contradpp completion fish | source      in ~/.config/fish/config.fish
    """
    script = get_completion_class(shell)
    if script is None:
        raise click.ClickException(f"this version of click has no completion for {shell}")
    click.echo(script(ctx.find_root().command, {}, "contradpp", "_CONTRADPP_COMPLETE").source())
