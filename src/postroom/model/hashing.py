"""The one hash of the house. From its own module, because `hashlib` loads all of OpenSSL, which no send needs."""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # another Python
    from hashlib import blake2b

__all__ = ["blake2b"]
