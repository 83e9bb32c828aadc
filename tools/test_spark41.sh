#!/bin/sh
# Runs on Spark 4.1 the tests of pipelines and sinks that `make test` has, or the tests that it is given.
# `make fetch` comes first: all packages but Spark, and the servers, are those of .venv.
set -eu
cd "$(dirname "$0")/.."

base=.venv
venv=$base/spark41

fail() {
    printf 'test_spark41: %s\n' "$1" >&2
    exit 1
}

[ -x "$base/bin/python" ] || fail "there is no $base: run make setup first."
version=$("$base/bin/python" -c 'from headrace.spark.lines import LINES; print(LINES["4.1"].pyspark)')

if [ ! -e "$venv/$version" ]; then
    printf 'Making %s with PySpark %s\n' "$venv" "$version"
    rm -rf "$venv"
    "$base/bin/python" -m venv --without-pip "$venv"
    "$base/bin/uv" pip install --quiet --python "$venv/bin/python" "pyspark==$version" ||
        fail "uv could not install PySpark $version; its words are above."
    # What comes first on the path wins, so PySpark is this one, and all else is what .venv has.
    "$base/bin/python" -c '
import sysconfig
from pathlib import Path
print(sysconfig.get_path("purelib"), Path("src").absolute(), sep="\n")' >"$("$venv/bin/python" -c '
import sysconfig
print(sysconfig.get_path("purelib"))')/headrace.pth"
    : >"$venv/$version"
fi

[ $# -gt 0 ] || set -- -m 'not full and not soak' tests/pipeline tests/sinks tests/spark tests/kafka
exec "$venv/bin/python" -m pytest "$@"
