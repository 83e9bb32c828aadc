"""The proxy that the environment names."""

from __future__ import annotations

from base64 import b64encode

import pytest

from headrace.errors import ConfigError, EndpointUnavailable
from tests.connectors.webhook.driving import planned, send, things
from tests.connectors.webhook_endpoint import Receiver

ADDRESS = "http://receiver.invalid/hooks"


@pytest.mark.parametrize("name", ["http_proxy", "all_proxy"])
@pytest.mark.parametrize("scheme", ["http://", ""])
def test_requests_go_by_it(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, name: str, scheme: str
) -> None:
    monkeypatch.setenv(name, f"{scheme}127.0.0.1:{receiver.port}")
    send(planned(ADDRESS), things(1))
    assert receiver.received[0].target == "http://receiver.invalid/hooks/things"


def test_it_may_want_a_password(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "")
    monkeypatch.setenv("http_proxy", f"http://me:hunter%402@127.0.0.1:{receiver.port}")
    send(planned(ADDRESS), things(1))
    token = b64encode(b"me:hunter@2").decode()
    assert receiver.received[0].headers["proxy-authorization"] == f"Basic {token}"


def test_a_host_can_do_without(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    send(planned(receiver.address), things(1))
    assert receiver.received[0].target == "/things"


def test_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://me:hunter2@127.0.0.1:1")
    with pytest.raises(EndpointUnavailable, match="by the proxy that the environment names") as error:
        send(planned(ADDRESS, retry_for=0), things(1))
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("proxy", ["socks5://me:hunter2@127.0.0.1:1", "http://me:hunter2@:x"])
def test_one_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(ConfigError, match="names a proxy for http that cannot be used") as error:
        planned(ADDRESS)
    assert "hunter2" not in str(error.value)
