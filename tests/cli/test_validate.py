"""`headrace validate`, as a person would call it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from devtools.kafka_broker import KafkaBroker
from headrace.sinks.contract import Place
from headrace.sinks.parquet_folder import FolderRows
from headrace.sinks.parquet_layout import Layout
from tests.cli.pipeline_files import changed, make_catalog, run, sentence_of, written
from tests.pipeline.scenario import Scenario


def test_help_has_examples() -> None:
    shown = run("validate", "--help").stdout
    assert "headrace validate headrace.yaml" in shown
    assert "changes nothing" in shown


def test_fields_and_guarantee_are_shown(tmp_path: Path) -> None:
    answer = run("validate", written(tmp_path))
    assert (answer.returncode, answer.stderr) == (0, "")
    cells = [[cell.strip() for cell in line.split("│")] for line in answer.stdout.splitlines()]
    rows = {tuple(row[1:5]) for row in cells if len(row) > 5}
    assert ("id", "integer", "required", "yes") in rows
    assert ("customer", "string", "recommended", "yes") in rows
    assert ("day", "date", "recommended", "no, excluded") in rows
    assert ("lines", "json", "optional", "yes, included") in rows
    assert ("lines", "json", "optional", "no") in rows
    assert "orders -> main.[bold]orders" in answer.stdout
    assert "guarantee: exactly-once\n  source collection orders: exactly-once (snapshots" in answer.stdout
    assert answer.stdout.index("sales (sqlite)") < answer.stdout.index("archive (sqlite)")
    assert not list(tmp_path.glob("*.db*"))


def test_one_by_name_for_a_program(tmp_path: Path) -> None:
    answer = run("validate", written(tmp_path), "sales", "--json")
    (sales,) = json.loads(answer.stdout)["materializations"]
    assert (sales["name"], sales["connector"], sales["guarantee"]) == ("sales", "sqlite", "exactly-once")
    assert {reason["link"] for reason in sales["reasons"]} >= {"source collection orders", "fence"}
    (binding,) = sales["bindings"]
    assert (binding["collection"], binding["resource_path"]) == ("orders", ["main", "orders"])
    assert binding["delta_updates"] is False
    assert binding["fields"][0] == {
        "name": "id",
        "type": "integer",
        "constraint": "required",
        "stored": True,
        "asked": "",
        "reason": "it is part of the key",
    }
    stored = [field["name"] for field in binding["fields"] if field["stored"]]
    assert stored == ["id", "customer", "lines", "_document"]


def test_postgres_is_asked_and_left_alone(tmp_path: Path, postgres_url: str) -> None:
    path = written(tmp_path, "postgres", f"{{url: '{postgres_url}'}}")
    assert run("apply", path, "sales").returncode == 0
    changed(path, "customer: {type: string}", "customer: {type: integer}")
    said = sentence_of(run("validate", path, "sales"))
    assert (
        "line 13: materializations.sales: field 'customer' of collection 'orders' cannot be stored: " in said
    )
    changed(path, "customer: {type: integer}", "customer: {type: string}")
    before = run("apply", path, "sales", "--dry-run", "--json").stdout
    answer = run("validate", path, "sales", "--json")
    (sales,) = json.loads(answer.stdout)["materializations"]
    assert sales["bindings"][0]["resource_path"] == ["public", "orders"]
    assert run("apply", path, "sales", "--dry-run", "--json").stdout == before


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("key: [/id]", "key: [/di]", r"headrace\.yaml, line 3: collections\.orders\.key: .* no location /di"),
        ("sales.db", "none/sales.db", r"line 13: materializations\.sales: .*sales\.db' does not exist"),
        ("config: {path", "config: {pth", r"line 15: materializations\.sales\.config: key 'path': "),
        ("{table: orders}", "{}", r"line 13: materializations\.sales: resource: key 'table': "),
        (
            "exclude: [day]",
            "exclude: [id]",
            r"line 13: materializations\.sales: field 'id' .* cannot be excl",
        ),
    ],
)
def test_trouble_is_one_sentence(tmp_path: Path, old: str, new: str, said: str) -> None:
    answer = run("validate", changed(written(tmp_path), old, new), "sales")
    assert re.search(said, sentence_of(answer))
    assert answer.stdout == ""


def test_names_and_files_that_are_not_there(tmp_path: Path) -> None:
    said = sentence_of(run("validate", written(tmp_path), "salse"))
    assert said.endswith("line 12: materializations: there is no 'salse'; there are sales, archive")
    assert sentence_of(run("validate", tmp_path / "no.yaml")).endswith(
        "no.yaml cannot be read: No such file or directory"
    )


def test_a_guarantee_that_cannot_be_had(tmp_path: Path) -> None:
    path = changed(written(tmp_path), "fields: {", "source: {format: rate}\n        fields: {")
    assert run("validate", path, "sales").returncode == 0
    changed(path, "    bindings:", "    guarantee: exactly-once\n    bindings:")
    answer = run("validate", path)
    assert "line 16: materializations.sales.guarantee: exactly-once cannot be had, since source rate: " in (
        sentence_of(answer)
    )
    # What it is made of is there to be read all the same, and so is the other one.
    assert "guarantee: at-least-once" in answer.stdout
    assert "archive (sqlite)" in answer.stdout
    assert "cannot be had" in sentence_of(run("apply", path))
    assert not list(tmp_path.glob("*.db*"))


def test_a_secret_is_not_shown(tmp_path: Path) -> None:
    path = written(tmp_path, "postgres", "{url: 'postgresql://ann:hunter2@127.0.0.1:1/x'}")
    answer = run("validate", path)
    assert answer.returncode == 1
    assert "hunter2" not in answer.stdout + answer.stderr


def test_one_file_is_shared_by_commands_that_have_different_secrets(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text("store: {url: '${HEADRACE_UNSET}'}\n" + path.read_text())
    assert run("validate", str(path)).returncode == 0
    server = changed(written(tmp_path), "materializations:\n", "serve: {host: 0.0.0.0}\nmaterializations:\n")
    changed(server, "connector: sqlite", "connector: sqlite\n    shards: ${HEADRACE_UNSET}")
    assert "HEADRACE_UNSET" in sentence_of(run("validate", str(server)))
    said = sentence_of(run("serve", "--config", str(server)))
    assert "0.0.0.0 can be reached by others" in said


def test_sinks_are_shown_with_where_they_go(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, "", {})
    scenario.sinks = {"files": {"format": "parquet"}, "table": {"format": "iceberg"}}
    scenario.targets = {"files": "out", "table": {"location": "views.orders", "mode": "view"}}
    file = scenario.configure()
    make_catalog(tmp_path / "data")
    answer = run("validate", file)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert f"sink files.orders: orders -> parquet {tmp_path.as_uri()}/out, appended" in answer.stdout
    assert "sink table.orders: orders -> iceberg views.orders, a view" in answer.stdout
    assert "sink table (iceberg): exactly-once" in answer.stdout
    (found,) = json.loads(run("validate", file, "--json").stdout)["materializations"]
    assert list(found["sinks"]) == ["files.orders", "table.orders"]


def test_a_catalog_that_is_not_there(tmp_path: Path) -> None:
    path = written(tmp_path)
    shutil.rmtree(tmp_path / "data")
    answer = run("validate", path, "sales")
    assert sentence_of(answer) == (
        f"headrace: materialization 'sales': source collection orders: there is no catalog at "
        f"{tmp_path}/data/catalog.db: start `headrace serve` on its data folder, or correct its path"
    )
    assert "guarantee: exactly-once" in answer.stdout
    (found,) = json.loads(run("validate", path, "sales", "--json").stdout)["materializations"]
    assert [said.partition(":")[0] for said in found["unreachable"]] == ["source collection orders"]
    assert not (tmp_path / "data").exists()


def test_brokers_that_do_not_answer(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    path = changed(
        written(tmp_path),
        "fields: {",
        "source: {kafka: {bootstrap: '127.0.0.1:1', topic: orders}}\n        fields: {",
    )
    assert re.fullmatch(
        r"headrace: materialization 'sales': source kafka orders: Kafka at 127\.0\.0\.1:1 does not tell: .*",
        sentence_of(run("validate", path, "sales")),
    )
    changed(path, "127.0.0.1:1", kafka_broker.bootstrap)
    said = sentence_of(run("validate", path, "sales"))
    assert "Unknown topic or partition" in said


def test_a_sink_of_somebody_else(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, "", {})
    scenario.sinks = {"files": {"format": "parquet"}}
    scenario.targets = {"files": "out"}
    file = scenario.configure()
    make_catalog(tmp_path / "data")
    assert run("validate", file).returncode == 0
    layout = Layout(Place((tmp_path / "out").as_uri(), "another", key=("id",)))
    layout.root.objects()  # makes the folder
    rows = FolderRows("files.orders", layout)
    rows.start(None, None, 1)
    rows.claim(layout.place.owner("lineage"), adopts=False)
    assert "sink files.orders: " in (said := sentence_of(run("validate", file)))
    assert "is written by materialization 'another': write to another table, or take this one over" in said
