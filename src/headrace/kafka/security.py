"""How our own connections to brokers are secured, by the options that Kafka's client for Python has."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from headrace.errors import ConfigError, Unauthenticated

OPTIONS = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MECHANISMS = ("PLAIN", *_SCRAM)


@dataclass
class Challenge:
    """A step of a conversation: what we say, and what is done with the answer."""

    says: bytes
    hears: Callable[[bytes], None] = lambda _: None


@dataclass(frozen=True)
class Security:
    is_encrypted: bool = False
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(options: Mapping[str, str]) -> Security:
        """Refuses what we could not do ourselves when a prepared transaction has to be committed."""
        protocol = options.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in _PROTOCOLS:
            raise ConfigError(f"security.protocol is {protocol!r}, and can be {', '.join(_PROTOCOLS)}")
        mechanism = ""
        if protocol.startswith("SASL"):
            mechanism = options.get("sasl.mechanism", "").upper()
            if mechanism not in _MECHANISMS:
                raise ConfigError(
                    f"sasl.mechanism is {mechanism!r}, and transactions can be finished by another process "
                    f"with {', '.join(_MECHANISMS)}"
                )
            for name in ("sasl.username", "sasl.password"):
                if name not in options:
                    raise ConfigError(f"sasl.mechanism {mechanism} needs {name}")
        return Security(
            protocol.endswith("SSL"),
            mechanism,
            options.get("sasl.username", ""),
            options.get("sasl.password", ""),
            options,
        )

    def wrapped(self, plain: socket.socket, host: str) -> socket.socket:
        if not self.is_encrypted:
            return plain
        try:
            return self._context().wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise

    def conversation(self, address: str) -> Iterator[Challenge]:
        if self.mechanism == "PLAIN":
            yield Challenge(f"\0{self.username}\0{self.password}".encode())
        else:
            yield from _scram(self, address)

    def refused(self, address: str, why: str) -> Unauthenticated:
        return Unauthenticated(f"the Kafka broker {address} refuses the user {self.username!r}: {why}")

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.options.get("ssl.ca.location"))
            if certificate := self.options.get("ssl.certificate.location"):
                key = self.options.get("ssl.key.location")
                context.load_cert_chain(certificate, key, self.options.get("ssl.key.password"))
        except OSError as error:
            raise ConfigError(
                f"a file of the options ssl.* cannot be read: {error.strerror or error}"
            ) from error
        context.check_hostname = self.options.get("ssl.endpoint.identification.algorithm", "https") == "https"
        return context


def _scram(security: Security, address: str) -> Iterator[Challenge]:
    """RFC 5802, without channel binding; the server proves as well that it knows the password."""
    digest = _SCRAM[security.mechanism]

    def sign(key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, digest)

    heard: dict[str, str] = {}

    def hear(raw: bytes) -> None:
        heard["raw"] = raw.decode()
        for part in raw.decode().split(","):
            name, _, value = part.partition("=")
            heard[name] = value

    nonce = base64.b64encode(os.urandom(18)).decode()
    user = security.username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={user},r={nonce}"
    yield Challenge(f"n,,{first}".encode(), hear)
    if not heard.get("r", "").startswith(nonce):
        raise security.refused(address, "its answer belongs to another conversation")
    salt, rounds = base64.b64decode(heard["s"]), int(heard["i"])
    salted = hashlib.pbkdf2_hmac(digest, security.password.encode(), salt, rounds)
    client_key = sign(salted, b"Client Key")
    bare = f"c=biws,r={heard['r']}"
    said = f"{first},{heard['raw']},{bare}".encode()
    signature = sign(hashlib.new(digest, client_key).digest(), said)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    yield Challenge(f"{bare},p={base64.b64encode(proof).decode()}".encode(), hear)
    expected = sign(sign(salted, b"Server Key"), said)
    if not hmac.compare_digest(base64.b64decode(heard.get("v", "")), expected):
        raise security.refused(address, "it does not know the password itself")
