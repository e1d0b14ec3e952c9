"""Runs go to disk and come back; what is not a run is named and the rest is read."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerbench.cell import Cell
from layerbench.environment import Environment, Source
from layerbench.errors import StoreError
from layerbench.floor import Floor
from layerbench.metrics import METRICS
from layerbench.record import SCHEMA_VERSION, Measured, Record, Run, Status
from layerbench.store.files import decode_json, encode_json
from layerbench.store.places import Place
from layerbench.store.runs import (
    Added,
    add_run,
    encode_run,
    load_run,
    load_runs,
    new_run_id,
    run_from_document,
    run_machine,
    save_run,
)

numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(min_value=1, max_value=10**15)
words = st.text(max_size=20)
tables = st.dictionaries(words, words, max_size=3)
cells = st.builds(
    Cell,
    model=words, layout=words, phase=words, layers=counts, batch=counts, seq=counts,
    dtype=words, target=words, new_tokens=st.integers(0, 10**6), mesh=words,
)  # fmt: skip
metrics = st.dictionaries(
    st.sampled_from(sorted(METRICS)),
    st.builds(Measured, value=numbers, samples=st.lists(numbers, max_size=4).map(tuple)),
    max_size=4,
)
details = {
    "cell": cells,
    "metrics": metrics,
    "floor": st.none() | st.builds(Floor, hbm_bytes=counts, flops=counts),
    "tokens_per_step": st.integers(0, 10**9),
    "interleaved": st.booleans(),
    "notes": st.lists(words, max_size=2).map(tuple),
    "contender": st.booleans(),
    "started_at": words,
    "duration_s": numbers,
}
records = st.builds(Record, status=st.just(Status.OK), **details) | st.builds(
    Record,
    status=st.sampled_from([Status.FAILED, Status.NOT_APPLICABLE]),
    reason=st.text(min_size=1, max_size=30),
    **details,
)
environments = st.builds(
    Environment,
    machine=words, python=words, system=words, cpu=words, cpu_count=counts, memory_bytes=counts,
    backend=words, device_kind=words, device_count=counts, platform_version=words,
    packages=tables, flags=tables, matmul_precision=words, prng=words, device_state=tables,
)  # fmt: skip
runs = st.builds(
    Run,
    id=st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,30}", fullmatch=True),
    command=words,
    source=st.builds(Source, commit=words, dirty=st.booleans(), branch=words),
    harness_digest=words,
    environments=st.dictionaries(words, environments, max_size=2),
    records=st.lists(records, max_size=4),
)


@pytest.fixture
def place(tmp_path):
    return Place(results=tmp_path, machine="linux-x86-2cpu")


@given(runs)
def test_a_run_comes_back_from_json_as_it_was(run):
    assert run_from_document(decode_json(encode_run(run))) == run


def test_a_run_is_found_where_the_contract_says(run, place, tmp_path):
    path = save_run(run, place)
    assert path == tmp_path / "records" / "linux-x86-2cpu" / f"{run.id}.json"
    assert load_runs(tmp_path) == ([run], [])


def test_the_golden_run_of_schema_1_stays_readable(golden):
    run = load_run(golden)
    assert encode_run(run) == golden.read_text()
    assert run.records[0].metrics["step_ms"].value == 1.0107
    assert run.records[0].floor == Floor(hbm_bytes=8_000_000, flops=16_000_000)
    assert [record.status.value for record in run.records[-4:]] == [
        "failed", "ok", "ok", "not-applicable",
    ]  # fmt: skip
    assert run.environments["cpu"].packages["jax"] == "0.10.2"


def damaged(document, **changes):
    return json.dumps({**document, **changes})


def test_each_unreadable_file_is_named_once_and_the_rest_is_read(run, place, tmp_path):
    good = save_run(run, place)
    text, document = good.read_text(), run.as_dict()
    newer = {"schema_version": SCHEMA_VERSION + 1}
    cell = {**document["records"][0]["cell"], "layers": 0}
    no_layers = {"records": [{**document["records"][0], "cell": cell}]}
    bad = {
        "array.json": ("[1, 2]", "not a layerbench run: a JSON array, not an object"),
        "cut-off.json": (text[: len(text) // 2], "not JSON, or cut off: "),
        "damaged-cell.json": (damaged(document, **no_layers), "a damaged run: UsageError: layers"),
        "damaged-environments.json": (damaged(document, environments=[1]), "a damaged run: "),
        "damaged-id.json": (damaged(document, id="../up"), "a damaged run: its id '../up'"),
        "damaged-records.json": (damaged(document, records=7), "a damaged run: "),
        "empty.json": ("", "an empty file"),
        "foreign.json": ('{"benchmarks": []}', "not a layerbench run: it has no schema_version"),
        "nan.json": (text.replace("1.0107", "NaN", 1), "not strict JSON: it holds NaN"),
        "newer.json": (damaged(document, **newer), "schema 2 is newer than 1: update layerbench"),
        "null.json": ("null", "not a layerbench run: a JSON null, not an object"),
        "same-id.json": (damaged(document, command="other"), f"another run has the same id {run.id}"),
    }  # fmt: skip
    for name, (content, _) in bad.items():
        (place.records / name).write_text(content)
    (place.records / "binary.json").write_bytes(b"\x80\x81")
    (place.records / "folder.json").mkdir()
    (place.records / ".run.json.123.tmp").write_text("left by a crash")
    (place.records / ".hidden.json").write_text("no result")
    (place.records / "README.md").write_text("no result")

    loaded, problems = load_runs(tmp_path)

    assert loaded == [run]
    said = {problem.path.name: problem.message for problem in problems}
    assert len(problems) == len(said) == len(bad) + 2
    assert said.keys() == {*bad, "binary.json", "folder.json"}
    for name, (_, message) in bad.items():
        assert said[name].startswith(message), name
        assert "\n" not in said[name]
    assert good.read_text() == text


def test_a_file_that_is_no_run_does_not_hide_the_order_of_ids(run, place, tmp_path):
    later = dataclasses.replace(run, id="20270101T000000Z-00000000")
    save_run(later, place)
    save_run(run, dataclasses.replace(place, machine="another"))
    assert load_runs(tmp_path)[0] == [run, later]


def test_a_folder_that_is_not_there_holds_no_runs(tmp_path):
    assert load_runs(tmp_path / "nothing") == ([], [])


def test_a_failed_write_leaves_the_stored_run_whole(run, place, monkeypatch):
    partial = dataclasses.replace(run, records=run.records[:3])
    path = save_run(partial, place)
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(StoreError, match="no space left"):
        save_run(run, place)
    assert load_run(path) == partial


def test_a_run_whose_number_is_not_finite_is_not_written_over_the_stored_one(run, place):
    path = save_run(run, place)
    broken = dataclasses.replace(run.records[0], duration_s=float("nan"))
    with pytest.raises(StoreError, match="strict JSON"):
        save_run(dataclasses.replace(run, records=[broken]), place)
    assert load_run(path) == run


def test_ids_sort_by_time_and_do_not_collide():
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    first, second = new_run_id(moment), new_run_id(moment)
    assert first != second
    assert first.startswith("20260102T030405Z-")
    assert first < new_run_id(moment + dt.timedelta(seconds=1))


def text_of(run):
    return encode_json(run.as_dict())


def test_a_run_offered_twice_is_stored_once(run, place):
    assert add_run(run, text_of(run), place) is Added.STORED
    assert add_run(run, text_of(run), place) is Added.ALREADY_THERE
    assert len(list(place.records.iterdir())) == 1


def test_of_two_states_of_a_run_the_one_with_more_records_wins(run, place):
    partial = dataclasses.replace(run, records=run.records[:3])
    assert add_run(partial, text_of(partial), place) is Added.STORED
    assert add_run(run, text_of(run), place) is Added.STORED
    assert add_run(partial, text_of(partial), place) is Added.ALREADY_THERE
    assert load_run(place.records / f"{run.id}.json") == run


def test_another_run_with_the_same_id_is_refused_and_the_stored_one_kept(run, place):
    add_run(run, text_of(run), place)
    other = dataclasses.replace(run, harness_digest="another")
    with pytest.raises(StoreError, match="another run has the same id"):
        add_run(other, text_of(other), place)
    assert load_run(place.records / f"{run.id}.json") == run


def test_a_run_that_is_taken_keeps_what_a_later_version_wrote_beside(run, place):
    text = json.dumps({**run.as_dict(), "weather": "fine"})
    add_run(run_from_document(json.loads(text)), text, place)
    assert json.loads((place.records / f"{run.id}.json").read_text())["weather"] == "fine"


def test_the_folder_of_a_run_is_its_environments_machine(run):
    assert run_machine(run) == "linux-x86-2cpu"
    assert run_machine(dataclasses.replace(run, environments={})) == "unnamed"
    strange = dataclasses.replace(run.environments["cpu"], machine="../up")
    assert run_machine(dataclasses.replace(run, environments={"cpu": strange})) == "unnamed"
