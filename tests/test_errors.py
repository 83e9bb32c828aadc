"""Errors: two kinds, and each crosses between processes as it is."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from headrace import errors
from headrace.errors import Fenced, HeadraceError, ProtocolError, Terminal, Transient

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HeadraceError)]
RAISED = [kind for kind in KINDS if kind not in (HeadraceError, Terminal, Transient)]


def fields_of(kind: type[HeadraceError]) -> dict[str, Any]:
    """A value for each field that a class declares."""
    declared = kind.__annotations__ if "__annotations__" in vars(kind) else {}
    return {name: f"a {name} \u2603" if type_ == "str" else 42 for name, type_ in declared.items()}


@pytest.mark.parametrize("kind", [Terminal, Transient, *RAISED])
def test_an_error_crosses_as_it_is(kind: type[HeadraceError]) -> None:
    fields = fields_of(kind)
    error = kind('it \u2603 went\n"wrong"', **fields)
    again = HeadraceError.from_json(error.to_json())
    assert type(again) is kind
    assert str(again) == again.message == 'it \u2603 went\n"wrong"'
    assert {name: getattr(again, name) for name in fields} == fields
    assert again.to_json() == error.to_json()


@pytest.mark.parametrize("kind", RAISED)
def test_an_error_says_by_its_kind_alone_whether_to_try_again(kind: type[HeadraceError]) -> None:
    assert issubclass(kind, Terminal) != issubclass(kind, Transient)
    assert kind.__doc__


def test_which_errors_may_go_away() -> None:
    assert {kind.__name__ for kind in RAISED if issubclass(kind, Transient)} == {
        "BufferFull",
        "CheckpointMoved",
        "EndpointUnavailable",
        "ServerUnavailable",
        "StorageFull",
        "StreamBroken",
        "UnexpectedFailure",
        "WriteTimeout",
    }


def test_the_json_is_what_the_proto_file_says() -> None:
    error = ProtocolError("no", message_name="Load", phase="OPEN", expected="Open")
    assert json.loads(error.to_json()) == {
        "error": "ProtocolError",
        "transient": False,
        "message": "no",
        "fields": {"message_name": "Load", "phase": "OPEN", "expected": "Open"},
    }


@pytest.mark.parametrize("name", ["OutOfPaper", "HeadraceError", "ValueError", ""])
def test_a_kind_that_is_not_known_here_is_terminal(name: str) -> None:
    error = HeadraceError.from_json(json.dumps({"error": name, "message": "x", "fields": {"tray": 2}}))
    assert type(error) is Terminal
    assert vars(error)["tray"] == 2


def test_fields_that_nobody_gave_are_there() -> None:
    """One from another version may leave some out; whoever handles it must not fail over that."""
    error = HeadraceError.from_json('{"error": "ProtocolError", "message": "x", "fields": {}}')
    assert isinstance(error, ProtocolError)
    assert (error.message_name, error.phase, error.expected) == ("", "", "")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"error": "Fenced"}'])
def test_json_that_is_no_error_is_refused(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        HeadraceError.from_json(text)


@pytest.mark.parametrize("kind", RAISED)
def test_an_error_can_be_pickled_and_copied(kind: type[HeadraceError]) -> None:
    error = kind("it", **fields_of(kind))
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert again.to_json() == error.to_json()


@pytest.mark.parametrize("kind", [Terminal, Transient])
def test_an_unknown_error_keeps_its_kind(kind: type[HeadraceError]) -> None:
    raw = json.loads(kind("x").to_json()) | {"error": "RateLimited"}
    assert type(HeadraceError.from_json(json.dumps(raw))) is kind


def test_a_field_that_is_no_json_travels_as_text() -> None:
    assert vars(HeadraceError.from_json(Fenced("x", fence=1 + 2j).to_json()))["fence"] == "(1+2j)"
