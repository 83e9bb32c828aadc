"""What the user may say of a topic, and what is refused, in one sentence."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace.errors import ConfigError
from headrace.sinks.contract import Place
from headrace.sinks.kafka_options import TopicOptions, ValueFormat, materialization_of, transactional_prefix


def options_of(topic: str = "sales", **options: str) -> TopicOptions:
    given = {key.replace("__", "."): value for key, value in options.items()}
    return TopicOptions.of("out", Place(topic, "view", options={"bootstrap": "a:1", **given}))


def test_what_is_not_said_has_a_default() -> None:
    options = options_of()
    assert (options.shards, options.value_format, options.key) == (1, ValueFormat.JSON, ())
    assert options.checkpoints == "headrace-checkpoints"
    assert options.recovery_time == timedelta(minutes=10)
    options.refuse_short_timeout()


def test_what_is_said() -> None:
    options = options_of(
        key="a, b", value_format="avro", shards="4", recovery_time="90s", header__origin="x", linger__ms="5"
    )
    assert (options.key, options.value_format, options.shards) == (("a", "b"), ValueFormat.AVRO, 4)
    assert (options.recovery_time, options.headers) == (timedelta(seconds=90), {"origin": "x"})
    assert options.client.producer_config()["linger.ms"] == "5"
    assert options.transactional_id(3) == "headrace/view/out/3"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bootstrap": ""}, "needs the option bootstrap"),
        ({"acks": "0"}, "has no option 'acks'; it has bootstrap, "),
        ({"value_format": "xml"}, "value_format is 'xml', and can be json or avro"),
        ({"shards": "0"}, "shards is '0', and has to be a number from 1 to 1000"),
        ({"recovery_time": "soon"}, "recovery_time is 'soon', and has to be a time such as 90s"),
        ({"transaction.timeout.ms": "5"}, "has to be a number from 1000 to"),
        ({"topic": "a/b"}, "'a/b' is no name of a Kafka topic"),
        ({"checkpoints": "."}, r"'\.' is no name of a Kafka topic \(checkpoints\)"),
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS', and can be PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "sasl.mechanism is 'GSSAPI', and"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "PLAIN needs sasl.username"),
    ],
)
def test_what_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        options_of(**options)


def test_no_two_sinks_share_a_transactional_id() -> None:
    assert transactional_prefix("a/b", "c") != transactional_prefix("a", "b/c")
    assert not transactional_prefix("a", "b/1").startswith(transactional_prefix("a", "b"))
    assert materialization_of(transactional_prefix("a.b/c", "d")) == "a.b/c"


def test_a_password_is_not_shown() -> None:
    options = options_of(
        security__protocol="SASL_SSL", sasl__mechanism="PLAIN", sasl__username="ann", sasl__password="hush"
    )
    assert "hush" not in repr(options)
    assert "hush" not in repr(options.client.security)
