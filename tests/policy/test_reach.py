"""Where a webhook may call: every sort of address, however it is written or wrapped."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as some

from postroom.errors import Invalid
from postroom.model.webhook import check_target, kind_of, may_be_called, read_target, why_not

KINDS = {
    "public": "8.8.8.8 93.184.216.34 100.63.255.255 100.128.0.0 172.32.0.1 2606:2800:220:1::1 2a00::1",
    "loopback": "127.0.0.1 127.255.255.254 ::1 ::ffff:127.0.0.1 64:ff9b::7f00:1",
    "private": "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 fd00::1 fc00::1 ::ffff:10.0.0.1"
    " ::ffff:a00:1 64:ff9b::a00:1",
    "link-local": "169.254.169.254 fe80::1 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe fe80::1%eth0 fd00::1%1",
    "a cloud's own": "100.100.100.200 168.63.129.16 fd00:ec2::254 ::ffff:100.100.100.200 64:ff9b::6464:64c8",
    "multicast": "224.0.0.1 239.255.255.255 ff02::1 ::ffff:224.0.0.1",
    "unspecified": "0.0.0.0 0.1.2.3 :: ::ffff:0.0.0.0",
    "reserved": "240.0.0.1 255.255.255.255 192.0.0.1 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.1 2001:db8::1"
    " 2002:7f00:1::1 2002:808:808::1 2001::1 64:ff9b:1::1 ::7f00:1 fec0::1 100::1 5f00::1 3fff::1",
}


@pytest.mark.parametrize(
    ("kind", "address"), [(kind, one) for kind, many in KINDS.items() for one in many.split()]
)
def test_an_address_is_what_it_really_reaches(kind: str, address: str) -> None:
    assert kind == kind_of(address)


def test_only_loopback_and_private_networks_can_be_allowed() -> None:
    assert {"public"} == {kind for kind in KINDS if may_be_called(kind, allow_private=False)}
    assert {"public", "loopback", "private"} == {kind for kind in KINDS if may_be_called(kind, allow_private=True)}


@given(some.ip_addresses())
def test_what_python_calls_private_is_never_open_to_all(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    is_special = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
    if is_special or not address.is_global:
        assert why_not("host", str(address), allow_private=False) is not None


@given(some.ip_addresses(v=4))
def test_an_address_inside_another_counts(inside: ipaddress.IPv4Address) -> None:
    for outside in (
        f"::ffff:{inside}",
        str(ipaddress.IPv6Address(int(ipaddress.IPv6Address("64:ff9b::")) + int(inside))),
    ):
        assert kind_of(str(inside)) == kind_of(outside)


@pytest.mark.parametrize("url", [
    "https://hooks.example.com/x", "https://hooks.example.com:8443/x", "https://8.8.8.8/", "https://[2606:2800:220:1::1]:1024/",
])  # fmt: skip
def test_what_everybody_reaches_may_be_kept(url: str) -> None:
    check_target(read_target(url), allow_private=False)


@pytest.mark.parametrize("url", [
    "http://127.0.0.1:8088/", "http://localhost/", "http://[::1]:9000/", "https://localhost:8443/", "https://10.0.0.1/",
    "https://192.168.1.1/", "https://[fd00::1]/",
])  # fmt: skip
def test_what_is_near_must_be_asked_for(url: str) -> None:
    with pytest.raises(Invalid, match="allow-private"):
        check_target(read_target(url), allow_private=False)
    check_target(read_target(url), allow_private=True)


@pytest.mark.parametrize("url", [
    "http://hooks.example.com/", "http://10.0.0.1/", "http://8.8.8.8/", "https://169.254.169.254/", "https://[fe80::1]/",
    "https://0.0.0.0/", "https://[::]/", "https://224.0.0.1/", "https://[2002:7f00:1::]/", "https://hooks.example.com:25/",
    "https://hooks.example.com:22/", "https://hooks.example.com:80/", "http://127.0.0.1:25/",
])  # fmt: skip
def test_what_is_never_called_may_not_be_kept(url: str) -> None:
    for allow in (False, True):
        with pytest.raises(Invalid) as refused:
            check_target(read_target(url), allow_private=allow)
        assert refused.value.field == "url" and refused.value.hint
