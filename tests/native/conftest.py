from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.native.admission import Admission
from tests.native.programs import program


@pytest.fixture(scope="session")
def admission() -> Iterator[Admission]:
    with Admission(program("admit")) as admission:
        yield admission
