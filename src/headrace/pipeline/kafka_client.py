"""Kafka's options, which are those of its Java client, as the client of Python wants them."""

from __future__ import annotations

import re
from typing import Any

from headrace.errors import ConfigError
from headrace.pipeline.settings import KafkaSource

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


def client_options(source: KafkaSource) -> dict[str, Any]:
    """Those that say how brokers are reached; how much is fetched at once, and the like, is left out.

    What only Java can read is refused in one sentence.
    """
    given = {name: value for name, value in source.options.items() if name.startswith(_ABOUT_THE_WAY)}
    options = {name: value for name, value in source.options.items() if name in _SAME}
    options["bootstrap.servers"] = source.bootstrap
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
