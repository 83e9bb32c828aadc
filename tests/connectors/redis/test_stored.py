"""What an application finds in Redis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.connectors.redis import storage
from headrace.errors import EndpointError
from headrace.protocol.messages import Apply, ValidateBinding
from headrace.testing import Runtime, materialization_of, samples
from tests.connectors.redis.driving import CLIENT, apply, ask, documents_keys, planned, things, write

NOTES = things(note={"type": ["string", "null"]}, size={"type": "number"}, tags={"type": "object"})


def test_a_document_is_json_under_its_key(redis_url: str) -> None:
    apply(redis_url, NOTES)
    write(redis_url, NOTES, {"id": 7, "note": "n\u00fc", "more": [1]})
    assert json.loads(ask(redis_url, "GET", "things:7")) == {"id": 7, "note": "n\u00fc", "more": [1]}
    assert documents_keys(redis_url) == {"things:7"}


def test_a_hash_has_a_field_for_each(redis_url: str) -> None:
    apply(redis_url, NOTES, format="hash")
    write(redis_url, NOTES, {"id": 7, "note": "n", "size": 0.1, "tags": {"a": 1}}, format="hash")
    found = ask(redis_url, "HGETALL", "things:7")
    assert json.loads(found.pop("_document")) == {"id": 7, "note": "n", "size": 0.1, "tags": {"a": 1}}
    assert found == {"id": "7", "note": "n", "size": "0.1"}


def test_a_field_of_a_hash_that_is_null_now_is_gone(redis_url: str) -> None:
    apply(redis_url, NOTES, format="hash")
    write(redis_url, NOTES, {"id": 7, "note": "n"}, format="hash")
    assert write(redis_url, NOTES, {"id": 7, "note": None}, format="hash") == 1
    assert set(ask(redis_url, "HGETALL", "things:7")) == {"id", "_document"}


@pytest.mark.parametrize("text_format", ["json", "hash"])
def test_delta_updates_are_entries_of_a_stream(redis_url: str, text_format: str) -> None:
    resource: dict[str, Any] = {"format": text_format, "delta_updates": True}
    apply(redis_url, NOTES, **resource)
    for note in ("first", "second"):
        with Runtime(CLIENT, planned(redis_url, NOTES, **resource)) as runtime:
            runtime.transact([[{"id": 7, "note": note}]], {"n": note})
    entries = [fields for _, fields in ask(redis_url, "XRANGE", "things", "-", "+")]
    if text_format == "hash":
        assert entries == [{"id": "7", "note": "first"}, {"id": "7", "note": "second"}]
    else:
        assert [json.loads(entry.pop("_document"))["note"] for entry in entries] == ["first", "second"]
        assert entries == [{}, {}]


@pytest.mark.parametrize("text_format", ["json", "hash"])
def test_a_document_expires_if_it_is_not_stored_again(redis_url: str, text_format: str) -> None:
    resource = {"format": text_format, "ttl": 100}
    apply(redis_url, NOTES, **resource)
    write(redis_url, NOTES, {"id": 7}, **resource)
    assert 0 < ask(redis_url, "TTL", "things:7") <= 100
    ask(redis_url, "EXPIRE", "things:7", 5)
    write(redis_url, NOTES, {"id": 7}, **resource)
    assert ask(redis_url, "TTL", "things:7") > 5
    ask(redis_url, "DEL", "things:7")
    assert write(redis_url, NOTES, {"id": 7}, **resource) == 0, "what expired is not loaded"


@pytest.mark.parametrize("text_format", ["json", "hash"])
def test_a_document_that_expires_while_it_is_loaded(
    redis_url: str, text_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(redis_url, NOTES, format=text_format)
    write(redis_url, NOTES, {"id": 7}, {"id": 8}, format=text_format)
    kind = storage.JsonStorage if text_format == "json" else storage.HashStorage
    loads = kind.loads

    def expired(self: Any, keys: Sequence[str]) -> Any:
        ask(redis_url, "DEL", "things:7")
        return loads(self, keys)

    monkeypatch.setattr(kind, "loads", expired)
    assert write(redis_url, NOTES, {"id": 7}, {"id": 8}, format=text_format) == 1
    assert write(redis_url, NOTES, {"id": 7}, format=text_format) == 0


def test_somebody_elses_key_is_not_taken_for_a_document(redis_url: str) -> None:
    apply(redis_url, NOTES)
    ask(redis_url, "RPUSH", "things:7", "mine")
    with pytest.raises(EndpointError, match=r"^Redis: WRONGTYPE"):
        write(redis_url, NOTES, {"id": 7})
    ask(redis_url, "RENAME", "things:7", "mine")
    ask(redis_url, "SETBIT", "things:7", 0, 1)
    with pytest.raises(EndpointError, match="not UTF-8"):
        write(redis_url, NOTES, {"id": 7})


def test_large_documents_are_loaded_in_portions(redis_url: str) -> None:
    """No answer of the server, nor any Loaded, is much larger than a chunk."""
    collection = things(note={"type": "string"}, count={"type": "integer", "reduce": {"strategy": "sum"}})
    documents = [{"id": number, "note": "x" * 1_500_000, "count": 1} for number in range(10)]
    apply(redis_url, collection)
    write(redis_url, collection, *documents)
    messages = 0

    def count(step: str) -> None:
        nonlocal messages
        messages += step == "received Loaded"

    with Runtime(CLIENT, planned(redis_url, collection), observer=count) as runtime:
        assert runtime.transact([documents], {"n": 2}).loaded == 10
    assert messages == 4
    assert all(json.loads(ask(redis_url, "GET", f"things:{number}"))["count"] == 2 for number in range(10))


def test_a_transaction_of_several_chunks(redis_url: str) -> None:
    binding = ValidateBinding(samples.LAST_SEEN, {"prefix": "seen"})
    view = materialization_of(CLIENT, "view", "redis", {"url": redis_url}, [binding])
    CLIENT.apply(Apply(view, "1"))
    with Runtime(CLIENT, view, rows_per_message=1700) as runtime:
        runtime.transact([[{"id": number} for number in range(3500)]], {"n": 1})
        again = runtime.transact([[{"id": number} for number in range(3501)]], {"n": 2}, always_load=True)
    assert again.loaded == 3500
    assert documents_keys(redis_url) == {f"seen:{number}" for number in range(3501)}
