"""Tokens and roles, from the file to a Flight call over a port."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.errors import ConfigError, Unauthenticated, Unauthorized
from headrace.ingest.access import Access, Identity
from headrace.ingest.tokens import ANYBODY, Roles, new_token

WRITER, READER, ADMIN = "writer-token-0123456789", "reader-token-0123456789", "admin-token-0123456789"
TOKENS: list[dict[str, Any]] = [
    {"name": "writer", "token": WRITER, "roles": {"write": ["orders", "items"]}},
    {
        "name": "reader",
        "token_sha256": sha256(READER.encode()).hexdigest().upper(),
        "roles": {"read": ["*"], "admin": False},
    },
    {"name": "admin", "token": ADMIN, "roles": {"admin": True}},
    {"name": "nothing", "token": "nothing-token-0123456789", "roles": {}},
]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def write_tokens(path: Path, tokens: Any) -> Path:
    path.write_text(yaml.safe_dump(tokens))
    path.chmod(0o600)
    return path


@pytest.fixture
def tokens_file(tmp_path: Path) -> Path:
    return write_tokens(tmp_path / "tokens.yaml", TOKENS)


def bearer(token: str) -> dict[str, list[str]]:
    return {"authorization": [f"Bearer {token}"]}


@pytest.mark.parametrize(
    ("token", "name", "writes", "reads", "is_admin"),
    [
        (WRITER, "writer", {"orders", "items"}, set(), False),
        (READER, "reader", set(), {"orders", "items", "other"}, False),
        (ADMIN, "admin", {"orders", "items", "other"}, {"orders", "items", "other"}, True),
        ("nothing-token-0123456789", "nothing", set(), set(), False),
    ],
)
def test_roles(
    tokens_file: Path, token: str, name: str, writes: set[str], reads: set[str], is_admin: bool
) -> None:
    identity = Access(tokens_file).identify(bearer(token))
    assert identity.name == name
    everything = ("orders", "items", "other")
    assert {one for one in everything if identity.may_write(one)} == writes
    assert {one for one in everything if identity.may_read(one)} == reads
    assert identity.is_admin is is_admin
    for one in everything:
        check(identity.require_write, one, one in writes, name, f"it lacks '{one}' in its role 'write'")
        check(identity.require_read, one, one in reads, name, f"it lacks '{one}' in its role 'read'")
    check(lambda _: identity.require_admin(), "", is_admin, name, "it lacks the role 'admin'")


def check(require: Callable[[str], None], collection: str, allowed: bool, name: str, lacks: str) -> None:
    if allowed:
        require(collection)
        return
    with pytest.raises(Unauthorized, match=f"token '{name}' may not") as refused:
        require(collection)
    assert lacks in refused.value.message


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {WRITER}"},
        {"Authorization": f"bearer   {WRITER} "},
        {"AUTHORIZATION": [f"BEARER {WRITER}".encode()]},
        {"user-agent": ["x"], "authorization": (f"Bearer {WRITER}",)},
    ],
)
def test_headers_in_all_their_forms(tokens_file: Path, headers: dict[str, Any]) -> None:
    assert Access(tokens_file).identify(headers).name == "writer"


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "this server wants a token: send the header 'authorization: Bearer TOKEN'"),
        ({"authorization": []}, "wants a token"),
        (bearer(WRITER + "x"), "the token is not known here"),
        (bearer(WRITER[:-1]), "the token is not known here"),
        (bearer(sha256(WRITER.encode()).hexdigest()), "the token is not known here"),
        (bearer("é" * 20), "the token is not known here"),
        ({"authorization": "Bearer " + "\udcff" * 20}, "the token is not known here"),
        ({"authorization": [f"Bearer {WRITER}"] * 2}, "there are 2 authorization headers"),
        ({"authorization": WRITER}, "holds no bearer token"),
        ({"authorization": f"Basic {WRITER}"}, "holds no bearer token"),
        ({"authorization": "Bearer "}, "holds no bearer token"),
        (bearer("x" * 5000), "holds no bearer token"),
    ],
)
def test_strangers(tokens_file: Path, headers: dict[str, Any], said: str) -> None:
    access = Access(tokens_file)
    with pytest.raises(Unauthenticated) as refused:
        access.identify(headers)
    assert said in refused.value.message
    assert WRITER[:-1] not in refused.value.message
    assert access.refused == 1


def test_without_a_file_everybody_may_do_everything() -> None:
    access = Access()
    assert access.identify({}) is ANYBODY
    assert access.rows() is None
    assert not access.needs_tokens
    ANYBODY.require_admin()
    ANYBODY.require_write("x")


def entry(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in (TOKENS[0] | changes).items() if value is not None}


WRONG: list[tuple[Any, str]] = [
    ([], "write a list of tokens"),
    (None, "write a list of tokens"),
    ({"name": "x"}, "write a list of tokens"),
    ([entry(rolls={})], "0.rolls: this key is not known; the keys here are name, token, token_sha256, roles"),
    ([entry(roles={"writes": []})], "0.roles.writes: this key is not known; the keys here are write, read"),
    ([entry(roles={"write": "orders"})], "0.roles.write: write a list"),
    ([entry(roles={"write": [1]})], "0.roles.write.0: write it as text"),
    ([entry(roles={"write": ["or ders"]})], "0.roles.write: 'or ders' is not a name of a collection"),
    ([entry(roles={"admin": "yes"})], "0.roles.admin: write true or false"),
    ([entry(roles=None)], "0.roles: this key is missing"),
    ([entry(name="")], "0.name"),
    ([entry(token=None)], "0: give one of token and token_sha256"),
    ([entry(token_sha256="0" * 64)], "0: give one of token and token_sha256"),
    ([entry(token="short")], "0.token: String should have at least 16 characters"),
    ([entry(token="tab\tin the middle of it")], "printable ASCII"),
    ([entry(token=None, token_sha256="abc")], "0.token_sha256"),
    ([*TOKENS, entry(token="another-token-0123456789")], "'writer' has this name a second time"),
    ([*TOKENS, entry(name="copy")], "'copy' has the token of 'writer' a second time"),
]


@pytest.mark.parametrize(("tokens", "said"), WRONG)
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path: Path, tokens: Any, said: str) -> None:
    path = write_tokens(tmp_path / "tokens.yaml", tokens)
    with pytest.raises(ConfigError) as refused:
        Access(path)
    assert refused.value.message.startswith(f"tokens file {path}: ")
    assert said in refused.value.message
    assert "\n" not in refused.value.message
    assert WRITER not in refused.value.message


def test_json_and_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps(TOKENS))
    assert Access(path).identify(bearer(READER)).name == "reader"
    with pytest.raises(ConfigError, match=r"nosuch cannot be read: No such file"):
        Access(tmp_path / "nosuch")


def test_a_file_that_everybody_can_read(tokens_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokens_file.chmod(0o640)
    Access(tokens_file)
    assert not caplog.records
    tokens_file.chmod(0o644)
    Access(tokens_file)
    assert "can be read by everybody on this machine" in caplog.text


def test_tokens_are_rotated_without_a_restart(tokens_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    access = Access(tokens_file, clock)
    before = access.identify(bearer(WRITER))
    new = "rotated-token-0123456789"
    write_tokens(tokens_file, [entry(token=new), *TOKENS[1:]])
    clock.now += 0.5  # too soon to look again
    assert access.identify(bearer(WRITER)) == before
    assert before.row in (access.rows() or [])
    clock.now += 0.6
    assert access.identify(bearer(new)).name == "writer"
    assert before.row not in (access.rows() or [])
    with pytest.raises(Unauthenticated):
        access.identify(bearer(WRITER))


def test_a_role_that_is_taken_away_makes_an_identity_old(tokens_file: Path) -> None:
    clock = Clock()
    access = Access(tokens_file, clock)
    before = access.identify(bearer(WRITER))
    write_tokens(tokens_file, [entry(roles={"write": ["items"]})])
    clock.now += 2
    assert before.row not in (access.rows() or [])
    assert not access.identify(bearer(WRITER)).may_write("orders")


def test_a_link_that_is_pointed_elsewhere(tmp_path: Path, tokens_file: Path) -> None:
    """As secrets are mounted in Kubernetes."""
    link = tmp_path / "link"
    link.symlink_to(tokens_file)
    clock = Clock()
    access = Access(link, clock)
    other = write_tokens(tmp_path / "other.yaml", [entry(token="rotated-token-0123456789")])
    os.utime(other, ns=(tokens_file.stat().st_mtime_ns,) * 2)
    link.unlink()
    link.symlink_to(other)
    clock.now += 2
    assert access.identify(bearer("rotated-token-0123456789")).name == "writer"


@pytest.mark.parametrize("breakage", ["nonsense: [", "[]", None])
def test_a_broken_file_changes_nothing(
    tokens_file: Path, caplog: pytest.LogCaptureFixture, breakage: str | None
) -> None:
    clock = Clock()
    access = Access(tokens_file, clock)
    if breakage is None:
        tokens_file.unlink()
    else:
        tokens_file.write_text(breakage)
    for _ in range(3):
        clock.now += 2
        assert access.identify(bearer(WRITER)).name == "writer"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "the tokens of before stay in force: tokens file" in caplog.text
    write_tokens(tokens_file, [entry(token="rotated-token-0123456789")])
    clock.now += 2
    assert access.identify(bearer("rotated-token-0123456789")).name == "writer"


def test_a_signal_reads_at_once(tokens_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    access = Access(tokens_file, Clock())
    write_tokens(tokens_file, [entry(token="rotated-token-0123456789")])
    access.reload()
    assert access.identify(bearer("rotated-token-0123456789")).name == "writer"
    access.reload()  # unchanged, and read nevertheless
    assert caplog.text.count("read 1 tokens from") == 2


def test_new_token(tmp_path: Path) -> None:
    token, line = new_token("ann", Roles(write=("orders",), read=("*",)))
    other, _ = new_token("ann", Roles(write=("orders",)))
    assert token != other
    assert token not in line
    assert len(token) >= 40
    path = tmp_path / "tokens.yaml"
    path.write_text(line + new_token("bob", Roles(admin=True))[1])
    identity = Access(path).identify(bearer(token))
    assert (identity.name, identity.roles) == ("ann", Roles(write=("orders",), read=("*",)))
    with pytest.raises(ConfigError, match="name"):
        new_token("", Roles())


def test_identities_of_two_tokens_differ() -> None:
    assert Identity("a", Roles(), b"1") != Identity("a", Roles(), b"2")
