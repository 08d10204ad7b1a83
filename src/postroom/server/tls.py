"""Certificates of other systems: their fingerprints, how one is looked at, how one that is pinned is insisted on.

A pinned certificate needs no authority to vouch for it: whoever has its key is meant. Without a pin the machine's
authorities decide, as everywhere.
"""

from __future__ import annotations

import hmac
import socket
import ssl
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..errors import Busy, Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable


PATIENCE = 10.0  # seconds


def fingerprint(der: bytes) -> str:
    """How a certificate is told from every other."""
    return f"sha256:{sha256(der).hexdigest()}"


def fingerprint_of_pem(pem: str, field: str = "certificate") -> str:
    """Of the first certificate in a file."""
    only = first_certificate(pem)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=only)
        return fingerprint(ssl.PEM_cert_to_DER_cert(only))
    except (ValueError, ssl.SSLError):
        text = "holds no certificate"
        raise Invalid(text, field=field, hint="PEM, which begins with -----BEGIN CERTIFICATE-----") from None


def first_certificate(pem: str) -> str:
    """The certificate itself, of a file that may hold those of its authorities, too; never a key beside it."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    inner = pem.partition(begin)[2].partition(end)[0]
    return f"{begin}{inner}{end}\n"


def certificate_at(url: str, patience: float = PATIENCE) -> str:
    """The certificate that is shown at this address, as PEM, whoever vouches for it. Nothing is said there."""
    place = urlsplit(url)
    host, port = place.hostname or "", place.port or 443
    try:
        with (
            socket.create_connection((host, port), patience) as plain,
            _unchecked().wrap_socket(plain, server_hostname=host) as secure,
        ):
            shown = secure.getpeercert(binary_form=True)
    except OSError as broken:  # so is what SSL says
        text = f"{host}:{port} cannot be reached by TLS: {broken}"
        raise Busy(text, field="url", hint="is it there? then try again; or --pin, or --certificate") from None
    return ssl.DER_cert_to_PEM_cert(shown or b"")


def dialling(pin: str, certificate: str = "", key: str = "") -> ssl.SSLContext:
    """How a peer is called: with a pin it is checked by `is_pinned` once TLS stands, before anything is said.
    Our own certificate is shown where it is asked for.
    """
    context = _unchecked() if pin else ssl.create_default_context()
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


def admitting(context: ssl.SSLContext, pinned: Iterable[str]) -> None:
    """Ask who calls for a certificate, and let in those of these (PEM), beside whoever shows none."""
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a certificate vouches for itself
    for pem in pinned:
        context.load_verify_locations(cadata=pem)


def is_pinned(pin: str, der: bytes | None) -> bool:
    return der is not None and hmac.compare_digest(pin, fingerprint(der))


def _unchecked() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
