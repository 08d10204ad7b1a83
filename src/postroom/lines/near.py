"""Is an address on this machine? Asked where nothing of a network is installed, too."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_near(server: str) -> bool:
    """Is it on this machine?"""
    host = urlsplit(server).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
