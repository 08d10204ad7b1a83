"""Rows of the command table for the program itself; the functions are in `postroom.cli.help`."""

from __future__ import annotations

from .shape import Command, Option

COMMANDS = {
    "help": Command(
        "help",
        "explain a command",
        Option(
            "COMMAND",
            help="its name; all lists every command, option of all, variable and exit code",
            many=True,
            complete="commands",
        ),
        examples=(
            ("postroom help send", "one of them"),
            ("postroom help all", "all of them"),
            ("postroom help", "those of every day"),
        ),
        json=(
            ("commands", "each with name, summary, about, options and examples"),
            ("text", "the same, for people"),
        ),
    ),
    "completion": Command(
        "completion",
        "a script that teaches your shell to complete postroom",
        Option("SHELL", help="which shell", kind="word", choices=("bash", "zsh", "fish"), required=True),
        about='bash: eval "$(postroom completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. fish:'
        " postroom completion fish > ~/.config/fish/completions/postroom.fish",
        examples=(("postroom completion bash", "print it"),),
        json=(("shell", "which"), ("script", "the script")),
    ),
    "version": Command(
        "version",
        "print the version",
        examples=(("postroom version", "print it"),),
        json=(("version", "of Postroom"), ("python", "its version"), ("sqlite", "its version")),
    ),
    "__complete": Command(
        "__complete",
        "what could come next",
        Option("WORD", help="the words so far, the last one unfinished", many=True),
    ),
}
