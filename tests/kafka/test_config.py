"""Options of Kafka's Java client, as its client for Python has them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.kafka.config import client_options


def options_of(**options: str) -> dict[str, Any]:
    found = client_options("a:1", {k.replace("_", "."): v for k, v in options.items()})
    return {k: v for k, v in found.items() if k != "bootstrap.servers"}


SCRAM = """org.apache.kafka.common.security.scram.ScramLoginModule required
    username="ann" password="a \\"b\\"; c=d";"""


def test_options_of_java_become_those_of_this_client() -> None:
    assert options_of(
        security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=SCRAM
    ) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": 'a "b"; c=d',
    }
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required username='bob' password=x;"
    assert options_of(sasl_jaas_config=plain) == {"sasl.username": "bob", "sasl.password": "x"}
    assert options_of(ssl_truststore_type="PEM", ssl_truststore_location="/ca.pem") == {
        "ssl.ca.location": "/ca.pem"
    }
    assert options_of(ssl_keystore_type="PEM", ssl_keystore_location="/own.pem", ssl_key_password="x") == {
        "ssl.certificate.location": "/own.pem",
        "ssl.key.location": "/own.pem",
        "ssl.key.password": "x",
    }
    store = {"ssl_keystore_location": "/own.p12", "ssl_keystore_password": "x"}
    assert options_of(ssl_keystore_type="pkcs12", **store) == {
        "ssl.keystore.location": "/own.p12",
        "ssl.keystore.password": "x",
    }
    assert options_of(ssl_endpoint_identification_algorithm="") == {
        "ssl.endpoint.identification.algorithm": "none"
    }
    # How much is read at once is no matter of how to get there.
    assert options_of(max_poll_records="5", client_id="me") == {"client.id": "me"}


def test_a_password_is_not_said() -> None:
    bad = SCRAM.replace("username", "user")
    with pytest.raises(ConfigError) as caught:
        options_of(sasl_jaas_config=bad)
    assert "a \\" not in caught.value.message
