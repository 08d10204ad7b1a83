"""Parts of a room that are loaded when they are first asked for. Start-up is what a short command costs."""

from __future__ import annotations

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import ModuleType


def on_demand(package: str, parts: Collection[str]) -> Callable[[str], ModuleType]:
    """A package's `__getattr__`. Python calls it once for each part; from then on the part is an attribute."""

    def load(name: str) -> ModuleType:
        if name not in parts:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module: ModuleType = __import__(f"{package}.{name}", fromlist=[name])
        return module

    return load
