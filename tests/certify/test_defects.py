"""Every seeded defect has something to replace: one that replaces nothing would be noticed by no scenario."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from headrace.certify.chain import CLOCK_MODULE
from headrace.certify.defects.names import STATE_ON_HOST
from headrace.certify.ingest.seeded import DEFECTS
from headrace.certify.seeding import MODULES, SEEDS

# Imports each module in a process of its own, and prints what it has added instead of replaced.
_PROGRAM = """
import ast, importlib, json, os, sys, types
from importlib.util import find_spec

def known():
    owners = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "headrace"]
    for module in list(owners):
        owners += [value for value in vars(module).values() if isinstance(value, type)]
    return {id(owner): (owner, {*dir(owner), *vars(owner)}) for owner in owners}

def import_what_it_imports(name):
    for node in ast.walk(ast.parse(open(find_spec(name).origin).read())):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")

def problems(name):
    from headrace.certify.defects import switching
    real, names = switching.defective, []
    def defective(owner, method, defect, lane_of):
        names.append(defect)
        return real(owner, method, defect, lane_of)
    switching.defective = defective
    before = known()
    importlib.import_module(name)
    added = [
        f"{name} adds {attribute} to {owner.__name__}"
        for owner, attributes in before.values()
        for attribute, value in vars(owner).items()
        if attribute not in attributes and not isinstance(value, types.ModuleType)
    ]
    return {"added": added, "names": names}

for name in sys.argv[1:]:
    import_what_it_imports(name)
answers = []
for name in sys.argv[1:]:
    reading, writing = os.pipe()
    if not os.fork():
        try:
            answer = problems(name)
        except Exception as error:
            answer = {"added": [f"{name}: {error!r}"], "names": []}
        with open(writing, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        answers.append(json.load(pipe))
    os.wait()
print(json.dumps(answers))
"""


@pytest.mark.processes
def test_every_defect_replaces_something() -> None:
    modules = [*MODULES, CLOCK_MODULE, *(defect.module for defect in DEFECTS)]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *modules], capture_output=True, text=True, check=True
    )
    answers = json.loads(done.stdout)
    assert not [problem for answer in answers for problem in answer["added"]]
    wanted = {defect for seed in SEEDS for defect in seed.defects} - {STATE_ON_HOST}
    assert wanted == {name for answer in answers for name in answer["names"]}
