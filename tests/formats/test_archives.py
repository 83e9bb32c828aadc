"""Archives do not depend on who packs them, and each unpacked fixture has one user at a time."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.formats.archives import FORMATS, held, pack
from tests.waiting import DEADLINE_SECONDS

MOST_BYTES = 10 << 20


def test_the_same_folder_makes_the_same_archive(tmp_path: Path) -> None:
    packed = []
    for mode, at in ((0o600, 1_000_000_000), (0o664, 1_500_000_000)):
        folder = tmp_path / f"folder {at}"
        for name in ("b", "a/.hidden", "empty"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "empty").mkdir()
        for name in ("b", "a/.hidden"):
            (folder / name).write_bytes(name.encode())
            (folder / name).chmod(mode)
            os.utime(folder / name, (at, at))
        pack(folder, tmp_path / "archive.tar.xz")
        packed.append((tmp_path / "archive.tar.xz").read_bytes())
    assert packed[0] == packed[1]


def test_a_place_has_one_user_at_a_time_and_is_gone_afterwards(tmp_path: Path) -> None:
    place = tmp_path / "place"
    steps: list[str] = []

    def use_too() -> None:
        with held(place):
            steps.append("another begins")
            assert not list(place.iterdir())

    other = threading.Thread(target=use_too)
    with held(place):
        (place / "file").touch()
        other.start()
        steps.append("one ends")
    other.join(DEADLINE_SECONDS)
    assert steps == ["one ends", "another begins"]
    assert not list(tmp_path.iterdir())


def test_what_somebody_left_who_was_killed_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place/file").touch()
    (tmp_path / "place.lock").touch()
    with held(tmp_path / "place") as place:
        assert not list(place.iterdir())
    assert not list(tmp_path.iterdir())


def test_a_place_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "place").symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="is not ours"), held(tmp_path / "place"):
        pass
    assert elsewhere.exists()


def test_all_fixtures_together_are_small() -> None:
    assert sum(archive.stat().st_size for archive in FORMATS.glob("v*/*.tar.xz")) <= MOST_BYTES
