"""A post room without the checks of people: whoever names a person acts as that person, in any session."""

from __future__ import annotations

from importlib import import_module

from postroom.cli.main import entry


def nobody(_core: object, _name: str) -> bool:
    return False


if __name__ == "__main__":
    for module in ("postroom.core.verb", "postroom.core.messages"):
        vars(import_module(module))["is_person"] = nobody
    vars(import_module("postroom.core.key_file"))["check_no_session"] = lambda *_: None
    entry()
