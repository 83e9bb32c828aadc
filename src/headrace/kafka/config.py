"""How brokers are reached: by the options of a sink, or by the Java client's, which sources have."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import ConfigError
from headrace.kafka.security import OPTIONS as SECURITY_OPTIONS
from headrace.kafka.security import Security

HEADER = "header."
_OURS = (
    "bootstrap",
    "key",
    "value_format",
    "shards",
    "checkpoints",
    "offsets_group",
    "transaction.timeout.ms",
    "recovery_time",
)
_TUNING = ("client.id", "compression.type", "linger.ms", "batch.size", "message.max.bytes")
_ABOUT_THE_WAY = ("security.", "sasl.", "ssl.")
_HOST_CHECK = "ssl.endpoint.identification.algorithm"
_SAME = ("client.id", "client.rack", "client.dns.lookup")
_WITH_PASSWORD = re.compile(
    r"org\.apache\.kafka\.common\.security\.(?:plain|scram)\.\w+\s+required\b(.*);", re.DOTALL
)
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;"']+))""")
_FROM_PEM = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.truststore.certificates": ("ssl.ca.pem",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
    "ssl.keystore.key": ("ssl.key.pem",),
}

# Without one of its own, a client tells standard error when it was fenced off.
_SILENT = logging.getLogger("headrace.sinks.kafka.client")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@dataclass(frozen=True)
class ClientOptions:
    """How brokers are reached."""

    bootstrap: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(given: Mapping[str, str]) -> ClientOptions:
        """Takes an endpoint's options; refuses those that nobody knows, by name."""
        for name in given:
            if name not in (*_OURS, *_TUNING, *SECURITY_OPTIONS) and not name.startswith(HEADER):
                raise ConfigError(
                    f"the format kafka has no option {name!r}; it has {', '.join(_OURS)}, {HEADER}NAME, "
                    f"and of Kafka's client {', '.join((*_TUNING, *SECURITY_OPTIONS))}"
                )
        if not given.get("bootstrap"):
            raise ConfigError(
                "the format kafka needs the option bootstrap: the address of a broker, HOST:PORT"
            )
        kept = {name: value for name, value in given.items() if name in (*_TUNING, *SECURITY_OPTIONS)}
        Security.of(kept)
        return ClientOptions(given["bootstrap"], kept)

    @property
    def security(self) -> Security:
        return Security.of(self.options)

    def connection_only(self) -> ClientOptions:
        """Keeps how brokers are reached, and drops the tuning."""
        kept = {name: value for name, value in self.options.items() if name in SECURITY_OPTIONS}
        return replace(self, options=kept)

    def client_config(self) -> dict[str, Any]:
        """Configures any client; it says nothing on standard error, since it raises what is wrong."""
        return {
            **self.connection_only().options,
            "bootstrap.servers": self.bootstrap,
            "log_level": 0,
            "logger": _SILENT,
        }

    def producer_config(self) -> dict[str, Any]:
        tuning = {name: value for name, value in self.options.items() if name in _TUNING}
        return {
            "compression.type": "lz4",
            **tuning,
            **self.client_config(),
            # As Java's producers do, so that one key is in one partition whoever writes it.
            "partitioner": "murmur2_random",
        }


def client_options(bootstrap: str, java_options: Mapping[str, str]) -> dict[str, Any]:
    """Translates the options about how brokers are reached; how much is fetched at once is left out.

    What only Java can read is refused in one sentence.
    """
    given = {name: value for name, value in java_options.items() if name.startswith(_ABOUT_THE_WAY)}
    options = {name: value for name, value in java_options.items() if name in _SAME}
    options["bootstrap.servers"] = bootstrap
    options |= _user(given.pop("sasl.jaas.config", None))
    if given.get(_HOST_CHECK) == "":
        given[_HOST_CHECK] = "none"
    for store in ("truststore", "keystore"):
        options |= _store(store, given)
    return {**options, **given}


def _user(jaas: str | None) -> dict[str, str]:
    if jaas is None:
        return {}
    module = _WITH_PASSWORD.fullmatch(jaas.strip())
    found = {} if module is None else _jaas_options(module[1])
    if "username" not in found or "password" not in found:
        raise ConfigError(
            "sasl.jaas.config has no user name and password, and is read by Kafka's Java client alone"
        )
    return {"sasl.username": found["username"], "sasl.password": found["password"]}


def _jaas_options(text: str) -> dict[str, str]:
    found = {}
    for name, quoted, single, bare in _JAAS_OPTION.findall(text):
        found[name] = re.sub(r"\\(.)", r"\1", quoted) or single or bare
    return found


def _store(store: str, given: dict[str, str]) -> dict[str, str]:
    """Takes what is about a store out of `given`."""
    kind = given.pop(f"ssl.{store}.type", "JKS").upper()
    names = [name for name in given if name.startswith(f"ssl.{store}.")]
    if kind == "PKCS12" and store == "keystore":
        return {name: given.pop(name) for name in names}
    if kind != "PEM" and names:
        raise ConfigError(f"ssl.{store}.type {kind} is read by Kafka's Java client alone: PEM is by both")
    known = {name: given.pop(name) for name in names if name in _FROM_PEM}
    return {renamed: value for name, value in known.items() for renamed in _FROM_PEM[name]}
