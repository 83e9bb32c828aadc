"""A secret is shown to nobody but the receiver."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.connectors.config import read_config
from headrace.connectors.webhook.config import WebhookEndpoint
from headrace.errors import HeadraceError
from headrace.protocol.messages import Validate
from tests.connectors.webhook.driving import CLIENT, planned, send, things
from tests.connectors.webhook_endpoint import Handler, Received, Receiver, answers

SECRET = 'hunt"er2'
CONFIGS: list[dict[str, Any]] = [
    {"token": SECRET},
    {"headers": {"X-Key": SECRET}},
    {"address": "http://me:hunt%22er2@127.0.0.1:PORT"},
    {"address": "http://127.0.0.1:PORT/?key=hunt%22er2"},
    {"address": "http://127.0.0.1:PORT/hunt%22er2"},
]
SPELLINGS = (SECRET, 'hunt\\"er2', "hunt%22er2", "bWU6aHVudCJlcjI=", "er2")


def config_for(receiver: Receiver, config: dict[str, Any]) -> dict[str, Any]:
    return {
        **config,
        "address": config.get("address", "http://127.0.0.1:PORT").replace("PORT", str(receiver.port)),
    }


def repeats(status: int) -> Any:
    """Repeats all of the request in the answer, as receivers in debug mode do."""

    def behave(handler: Handler, received: Received) -> None:
        received.taken = False
        said = f"{received.target} {received.headers}".replace("'", '"')
        handler.answer(status, f'{said} hunt\\"er2 hunt"er2 {"x" * 40} {said}'.encode())

    return behave


def everything_said(action: Callable[[], Any]) -> str:
    """The error that an action ends with, with its causes and as another process would get it."""
    with pytest.raises(HeadraceError) as caught:
        action()
    error = caught.value
    # Not a traceback, which would repeat lines of this very file.
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    return "".join([*map(str, chain), *map(repr, chain), error.to_json()])


def assert_hidden(text: str) -> None:
    assert not [spelling for spelling in SPELLINGS if spelling in text], text


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("status", [400, 503, 307])
def test_answers_that_repeat_it(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, config: dict[str, Any], status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    receiver.script.extend([repeats(503), *[repeats(status)] * 20])
    whole = config_for(receiver, config)
    # Only where all answers are 503 is it tried until the time is up, all of which may go for one try.
    lasting = 0.5 if status == 503 else 60
    said = everything_said(lambda: send(planned(whole.pop("address"), **whole, retry_for=lasting), things(1)))
    assert "answers" in said
    assert_hidden(said)
    assert "trying again" in caplog.text or status == 503
    assert_hidden(caplog.text)


@pytest.mark.parametrize("config", CONFIGS)
def test_what_is_logged_of_success(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, config: dict[str, Any]
) -> None:
    caplog.set_level(logging.DEBUG)
    whole = config_for(receiver, config)
    materialization = planned(whole.pop("address"), **whole)
    send(materialization, things(1))
    assert len(receiver.received) == 1
    assert_hidden(caplog.text + repr(materialization))


def test_others_that_use_urllib3_log_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("urllib3.connectionpool").debug("somebody else's")
    assert "somebody else's" in caplog.text


@pytest.mark.parametrize("config", CONFIGS)
def test_a_configuration_hides_it(receiver: Receiver, config: dict[str, Any]) -> None:
    endpoint = read_config(WebhookEndpoint, config_for(receiver, config), "endpoint")
    assert_hidden(f"{endpoint} {endpoint!r} {endpoint.model_dump()} {endpoint.target!r}")


def test_a_secret_at_the_end_of_what_is_read_of_an_answer(receiver: Receiver) -> None:
    # So many that are masked, that what is left of the last comes within what is shown.
    receiver.script.append(answers(400, b"hunter2hunter2hunter2" * 3120 + b"hunter2hunter2hunter"))
    said = everything_said(lambda: send(planned(receiver.address, token="hunter2hunter2hunter2"), things(1)))
    assert "400" in said
    assert "hunter" not in said


def test_errors_of_the_configuration_hide_it() -> None:
    for wrong in (
        {"address": f"https://me:{SECRET}@receiver.example/ a"},
        {"address": f"ftp://receiver.example/?key={SECRET}"},
        {"address": "https://receiver.example", "token": f"{SECRET}\n"},
        {"address": "https://receiver.example", "token": [SECRET]},
        {"address": "https://receiver.example", "headers": {"X-Key": f"{SECRET}\n"}},
        {"address": "https://receiver.example", "headers": SECRET},
    ):
        said = everything_said(lambda wrong=wrong: CLIENT.validate(Validate("v", "webhook", wrong, ())))  # type: ignore[misc]
        assert_hidden(said)


@given(st.text("@:/?#%[]&=, \\'\"+a0\u00fc", max_size=6), st.text("@:/?#%[]&=, \\'\"+a0\u00fc", max_size=6))
@example("@", "?")  # which would make a host of it
def test_no_spelling_of_an_address_shows_it(before: str, after: str) -> None:
    for address in (
        f"http://localhost:{before}hunter2{after}@127.0.0.1:1/",
        f"http://127.0.0.1:1/{before}hunter2{after}",
        f"http://127.0.0.1:1/?{before}hunter2{after}",
    ):
        said = everything_said(lambda address=address: send(planned(address, retry_for=0), things(1)))  # type: ignore[misc]
        assert "hunter2" not in said
