"""What can be configured, and what is said of what cannot."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.config import read_config
from headrace.connectors.webhook.config import WebhookEndpoint, WebhookResource
from headrace.errors import ConfigError, ProtocolError
from headrace.model.key_range import FULL_RANGE
from headrace.protocol.messages import Apply, Open, Spec, Validate, ValidateBinding
from headrace.testing import Runtime
from headrace.testing.recovery_log import LoggedState, MemoryLog
from tests.connectors.webhook.driving import CLIENT, THINGS, planned
from tests.connectors.webhook_endpoint import Receiver

GOLDEN = Path(__file__).parent / "golden"
ADDRESS = "https://receiver.example/hooks"


def test_what_spec_says() -> None:
    said = json.dumps(asdict(CLIENT.spec(Spec())), indent=2)
    assert said + "\n" == (GOLDEN / "spec.json").read_text()


def test_what_validate_says() -> None:
    binding = ValidateBinding(THINGS, {"path": "/shop/things"})
    (answer,) = CLIENT.validate(Validate("view", "webhook", {"address": ADDRESS}, (binding,))).bindings
    said = [f"{name}: {rule.kind}: {rule.reason}" for name, rule in answer.constraints.items()]
    assert said == [
        "id: required: it is part of the key",
        "text: forbidden: it is sent within the document, never by itself",
        "_document: required: it is what is sent",
    ]
    assert answer.delta_updates
    assert answer.resource_path == ("shop/things",)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "'address': Field required"),
        ({"address": "receiver.example"}, "'address': it does not read as https://host/path"),
        ({"address": "ftp://receiver.example"}, "'address': it does not read as https://host/path"),
        ({"address": "https:///hooks"}, "'address': it does not read as https://host/path"),
        ({"address": "https://receiver.example:x/"}, "'address': it does not read as https://host/path"),
        ({"address": "https://receiver.example/a b"}, "'address': it does not read as https://host/path"),
        ({"address": "https://receiver.example/#a"}, "'address': it does not read as https://host/path"),
        ({"address": "https://me:a@b?@receiver.example"}, "'address': it does not read as https://host/path"),
        ({"address": "https://receiver.example/@a"}, "'address': it does not read as https://host/path"),
        ({"token": "a\nb"}, "'token': it holds a character that no header can carry"),
        ({"token_env": "NOT_SET_ANYWHERE"}, "environment variable NOT_SET_ANYWHERE is not set to a token"),
        ({"token": "abc", "headers": {"authorization": "x"}}, "more than one way to sign in"),
        ({"token": "abc", "address": "https://a:b@receiver.example"}, "more than one way to sign in"),
        ({"headers": {"Content-Type": "text/plain"}}, "header Content-Type is the connector's to set"),
        ({"headers": {"idempotency-key": "1"}}, "header idempotency-key is the connector's to set"),
        ({"headers": {"a b": "x"}}, "a name of a header has letters, digits and hyphens"),
        ({"headers": {"X-A": "x", "x-a": "y"}}, "header x-a is there twice"),
        ({"headers": {"X-A": "x\r\nX-B: y"}}, "the value of header X-A is empty or holds what no header can"),
        ({"timeout": 0}, "'timeout': Input should be greater than 0"),
        ({"retry_for": -1}, "'retry_for': Input should be greater than or equal to 0"),
        ({"batch_documents": 0}, "'batch_documents': Input should be greater than or equal to 1"),
        ({"concurrency": 33}, "'concurrency': Input should be less than or equal to 32"),
        ({"adress": "x"}, "'adress': Extra inputs are not permitted; the keys are address, token"),
        ({"authorities_file": "/nowhere.pem"}, "'authorities_file': /nowhere.pem cannot be read as"),
    ],
)
def test_a_wrong_endpoint_is_told_by_its_key(config: dict[str, Any], message: str) -> None:
    whole = {"address": ADDRESS, **config} if config else {}
    with pytest.raises(ConfigError) as error:
        CLIENT.validate(Validate("view", "webhook", whole, ()))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ({"delta_updates": False}, "a webhook takes delta updates only"),
        ({"path": "things?a=1"}, "a query belongs into the endpoint's 'address'"),
        ({"path": "../things"}, "an empty part, '.' or '..'"),
        ({"path": "shop//things"}, "an empty part, '.' or '..'"),
        ({"path": "//things"}, "an empty part, '.' or '..'"),
        ({"path": "a\nb"}, "a character that no URL can carry"),
    ],
)
def test_a_wrong_resource_is_told_by_its_key(resource: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_config(WebhookResource, resource, "resource")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("address", "path", "url"),
    [
        ("https://receiver.example", "/", "https://receiver.example/"),
        ("https://receiver.example/hooks", "/", "https://receiver.example/hooks"),
        ("https://receiver.example/hooks/", "/", "https://receiver.example/hooks/"),
        ("https://receiver.example/hooks/", "a", "https://receiver.example/hooks/a"),
        ("https://receiver.example/hooks", "/a/b/", "https://receiver.example/hooks/a/b/"),
        ("https://receiver.example/hooks?k=1&l=2", "a", "https://receiver.example/hooks/a?k=1&l=2"),
        ("http://u:p@[::1]:8080", "a b%2F", "http://[::1]:8080/a%20b%252F"),
    ],
)
def test_where_requests_go(address: str, path: str, url: str) -> None:
    endpoint = read_config(WebhookEndpoint, {"address": address}, "endpoint")
    resource = read_config(WebhookResource, {"path": path}, "resource")
    assert endpoint.target.url(resource.path) == url


def test_a_binding_that_wants_more_is_refused(receiver: Receiver) -> None:
    materialization = planned(receiver.address)
    (binding,) = materialization.bindings
    for wrong, message in (
        (replace(binding, delta_updates=False), "takes delta updates only"),
        (replace(binding, document=None), "must store its document and nothing else"),
        (replace(binding, values=THINGS.fields[1:]), "must store its document and nothing else"),
    ):
        changed = replace(materialization, bindings=(wrong,))
        with pytest.raises(ConfigError, match=message):
            CLIENT.apply(Apply(changed, "1"))
        with pytest.raises(ConfigError, match=message), Runtime(CLIENT, changed):
            pass


@pytest.mark.parametrize("checkpoint", [{"transaction": "7"}, {"transaction": -1}, {"transaction": True}])
def test_a_checkpoint_of_somebody_elses_is_refused(receiver: Receiver, checkpoint: dict[str, Any]) -> None:
    log = MemoryLog()
    log.commit(LoggedState({"n": 1}, checkpoint))
    with (
        pytest.raises(ProtocolError, match="not a webhook's"),
        Runtime(CLIENT, planned(receiver.address), log),
    ):
        pass


def test_the_checkpoint_is_the_transactions_number(receiver: Receiver) -> None:
    log = MemoryLog()
    with Runtime(CLIENT, planned(receiver.address), log) as runtime:
        for number in (1, 2):
            runtime.transact([[]], {"n": number})
            assert log.read().connector_checkpoint == {"transaction": number}
    assert receiver.received == []
    stream = CLIENT.transactions()
    stream.send(Open(planned(receiver.address), "1", FULL_RANGE, {"transaction": 2}))
    assert getattr(stream.receive(), "runtime_checkpoint", "") is None
    stream.close()
