from __future__ import annotations

from headrace.certify.progress import Progress


def test_parts_are_as_long_as_their_weights_and_steps_share_them() -> None:
    told: list[tuple[str, float]] = []
    progress = Progress(lambda text, share: told.append((text, share)), {"short": 1, "none": 0, "long": 3})
    steps = progress.part("short")
    steps.expect(2)
    steps("one")
    steps("two")
    progress.part("none")("nothing")
    progress.part("long").at("half of it", 0.5)
    assert told == [
        ("short: one", 0.0),
        ("short: two", 0.125),
        ("none: nothing", 0.25),
        ("long: half of it", 0.625),
    ]


def test_more_steps_than_expected_are_not_more_than_all() -> None:
    told: list[float] = []
    steps = Progress(lambda _text, share: told.append(share), {"all": 2}).part("all")
    for number in range(3):
        steps(str(number))
    assert told == [0.0, 1.0, 1.0]
