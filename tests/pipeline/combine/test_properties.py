"""Both ways to combine make of random documents what the reference does, in any grouping."""

from __future__ import annotations

from random import Random

import orjson
import pyarrow as pa
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headrace.model.collections import Collection
from headrace.model.json_order import order_key
from headrace.model.materializations import Binding
from headrace.pipeline.combine.combiner import combiner, runs_in_jvm
from headrace.pipeline.shards.reduce import Reducer
from tests.examples import examples
from tests.pipeline.random_documents import (
    PARTS,
    Combined,
    by_key,
    documents_of,
    every_strategy,
    expected,
    frame_of,
    looked_into,
    merged_objects,
    some_strategies,
)

MERGE = {"reduce": {"strategy": "merge"}}
ROOTS = [
    pytest.param({}, marks=pytest.mark.full),
    MERGE,
    pytest.param({"reduce": {"strategy": "firstWriteWins"}}, marks=pytest.mark.full),
    {"reduce": {"strategy": "lastWriteWins"}},
]
# Not checkable as annotations of an object's members, but of the whole document.
LATEST = {"reduce": {"strategy": "maximize", "key": ["/plain", "/id"]}}

# A smaller seed is not a simpler example, so nothing is to be had from shrinking.
few = examples(0.02, phases=[Phase.explicit, Phase.reuse, Phase.generate])
seeds = st.integers(0, 2**32)


def check(spark: SparkSession, collection: Collection, random: Random, documents: int, keys: int) -> None:
    written = documents_of(random, collection, documents, keys)
    combined = Combined(combiner(collection, collection.fields)(frame_of(spark, collection, written)))
    assert combined.by_value == expected(collection, written)
    assert combined.counts == {key: len(group) for key, group in by_key(collection, written).items()}
    assert combined.values(collection.fields) == combined.extracted(collection.fields)


@few
@given(seed=seeds)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_strategy_of_the_aggregates(spark: SparkSession, part: int, seed: int) -> None:
    collection = every_strategy(part)
    assert runs_in_jvm(collection)
    check(spark, collection, Random(seed), documents=400, keys=60)


@few
@given(seed=seeds)
@pytest.mark.parametrize("root", ROOTS, ids=str)
def test_random_schemas(spark: SparkSession, root: dict[str, object], seed: int) -> None:
    random = Random(seed)
    collection = some_strategies(random, root)
    assert runs_in_jvm(collection)
    check(spark, collection, random, documents=200, keys=30)


@few
@given(seed=seeds)
def test_objects_in_objects(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    collection = merged_objects(random)
    assert runs_in_jvm(collection)
    check(spark, collection, random, documents=300, keys=40)


@few
@given(seed=seeds)
@pytest.mark.parametrize("root", [MERGE, LATEST], ids=str)
def test_what_workers_combine(spark: SparkSession, root: dict[str, object], seed: int) -> None:
    collection = looked_into(root)
    assert not runs_in_jvm(collection)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 7)
    try:
        check(spark, collection, Random(seed), documents=300, keys=40)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@few
@given(seed=seeds)
@pytest.mark.parametrize("which", ["aggregates", pytest.param("objects", marks=pytest.mark.full), "workers"])
def test_epochs_add_up(spark: SparkSession, which: str, seed: int) -> None:
    """Combined by epoch, and then combined again or reduced with what is stored: the same as all at once."""
    random = Random(seed)
    makers = {"objects": lambda: merged_objects(random), "workers": lambda: looked_into(MERGE)}
    collection = makers.get(which, lambda: every_strategy(seed % PARTS))()
    assert runs_in_jvm(collection) is (which != "workers")
    written = documents_of(random, collection, 300, 40)
    cut = random.randint(100, 200)
    epochs = [written[:cut], written[cut:]]
    combined = [
        Combined(combiner(collection, collection.fields)(frame_of(spark, collection, epoch)))
        for epoch in epochs
    ]
    together = [document for epoch in combined for document in epoch.documents]
    again = Combined(combiner(collection, collection.fields)(frame_of(spark, collection, together)))
    assert again.by_value == expected(collection, written)

    reducer = Reducer(Binding(collection, {}, ("table",), values=collection.fields))
    stored: dict[tuple[object, ...], str] = {}
    for epoch in combined:
        known = [key for key in epoch.texts if key in stored]
        _, texts = reducer.reduce(
            pa.array([stored[key] for key in known], pa.string()),
            pa.array([epoch.texts[key] for key in known], pa.string()),
        )
        stored |= epoch.texts | dict(zip(known, texts.to_pylist(), strict=True))
    assert {key: order_key(orjson.loads(text)) for key, text in stored.items()} == expected(
        collection, written
    )
