"""TLS certificates of other systems: fingerprints, fetching one, and contexts that check a pinned one.

A pinned certificate needs no certificate authority: the peer is the holder of its key. Without a pin the
authorities that this machine trusts decide.
"""

from __future__ import annotations

import hmac
import ssl
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..errors import Busy, Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable


PATIENCE = 10.0  # seconds


def fingerprint(der: bytes) -> str:
    """Return the fingerprint of a certificate."""
    return f"sha256:{sha256(der).hexdigest()}"


def fingerprint_of_pem(pem: str, field: str = "certificate") -> str:
    """Return the fingerprint of the first certificate in a file."""
    only = first_certificate(pem)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=only)
        return fingerprint(ssl.PEM_cert_to_DER_cert(only))
    except (ValueError, ssl.SSLError):
        text = "holds no certificate"
        raise Invalid(text, field=field, hint="PEM, which begins with -----BEGIN CERTIFICATE-----") from None


def first_certificate(pem: str) -> str:
    """Return the first certificate of a file, without those of its authorities and without a key."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    inner = pem.partition(begin)[2].partition(end)[0]
    return f"{begin}{inner}{end}\n"


def certificate_at(url: str, patience: float = PATIENCE) -> str:
    """Return the certificate that a server shows, as PEM, without checking it. No data is sent to the server."""
    place = urlsplit(url)
    host, port = place.hostname or "", place.port or 443
    try:
        return ssl.get_server_certificate((host, port), timeout=patience)
    except OSError as broken:  # errors of ssl, too
        text = f"{host}:{port} cannot be reached by TLS: {broken}"
        raise Busy(
            text, field="url", hint="check that the server runs, then try again; or give --pin or --certificate"
        ) from None


def client_context(pin: str, certificate: str = "", key: str = "") -> ssl.SSLContext:
    """Return the context for connecting to a peer. With a pin, `is_pinned` must be checked after the handshake and
    before anything is sent. Our own certificate is shown if the peer asks for it.
    """
    context = ssl.create_default_context()
    if pin:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


def accept_certificates(context: ssl.SSLContext, pinned: Iterable[str]) -> None:
    """Ask clients for a certificate: these (PEM) are accepted, and so are clients without one."""
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a self-signed certificate is its own authority
    for pem in pinned:
        context.load_verify_locations(cadata=pem)


def is_pinned(pin: str, der: bytes | None) -> bool:
    return der is not None and hmac.compare_digest(pin, fingerprint(der))
