"""A home with hosts in it, into which Postroom is put and out of which it is taken.

Without pytest: processes that are killed use it, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from postroom.hosts.install import plan as install_plan
from postroom.hosts.install.layouts import HostFiles, Order, layout_of

HOSTS = ("claude", "codex", "gemini")
PROGRAM = ("/opt/mail/bin/postroom",)
# What stands in files of hosts before we come.
SETTINGS = '{\n  "theme": "x", "hooks": {"Other": []}, // mine\n  "mcpServers": {"git": {"command": "x"}}\n}'
HOOKS = '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "lint"}]}]}, "x": [1,2]}'
THEIRS = {
    "claude": {".claude/CLAUDE.md": "# Mine", ".claude/settings.json": "{}"},
    "codex": {".codex/hooks.json": HOOKS, ".codex/config.toml": 'model = "x"', ".codex/AGENTS.md": "a\r\nb\r\n"},
    "gemini": {".gemini/settings.json": SETTINGS, ".gemini/GEMINI.md": "\n# Mine\n\n"},
}


class Home:
    """A user's home; what stands in it; install and uninstall as the commands do them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "home"
        self.folder.mkdir(mode=0o755, exist_ok=True)

    def order(self, host: str, **more: Any) -> Order:
        return Order(host, **{"program": PROGRAM, **more})

    def layout(self, host: str, **more: Any) -> HostFiles:
        return layout_of(self.order(host, **more))

    def plan(self, host: str, *, rules: bool = True, **more: Any) -> install_plan.Plan:
        return install_plan.to_install(self.layout(host, **more), rules=rules)

    def install(self, host: str, *, rules: bool = True, **more: Any) -> install_plan.Plan:
        plan = self.plan(host, rules=rules, **more)
        return self._carry_out(plan, self.layout(host, **more))

    def uninstall(self, host: str, **more: Any) -> install_plan.Plan:
        layout = self.layout(host, **more)
        return self._carry_out(install_plan.to_uninstall(layout), layout)

    def _carry_out(self, plan: install_plan.Plan, layout: HostFiles) -> install_plan.Plan:
        if plan:
            install_plan.carry_out(plan, layout)
        return plan

    def put(self, path: str, content: str | bytes, mode: int = 0o644) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        file.chmod(mode)
        return file

    def text(self, path: str) -> str:
        return (self.folder / path).read_bytes().decode()

    def all(self) -> dict[str, tuple[int, bytes | None]]:
        """Everything that is there: its mode, and what it holds."""
        found = sorted(self.folder.rglob("*"))
        return {
            str(path.relative_to(self.folder)): (
                path.lstat().st_mode,
                path.read_bytes() if path.is_file() and not path.is_symlink() else None,
            )
            for path in found
        }
