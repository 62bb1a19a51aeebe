"""Files of others: bombs, depth, width and damage are each one error that names the place and the cure."""

import base64
import gzip
import json
import time
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.errors import BundleError, InputError
from trimtab.inputs.arrow_tables import column_names, floats, read_arrow_table
from trimtab.inputs.documents import load_json, load_yaml, load_yaml_documents
from trimtab.inputs.files import csv_rows, read_bytes, read_packed, read_text
from trimtab.tables.bundle import open_parquet

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20))
MERGES = "a0: &a0 {k: 1}\n" + "".join(f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20))
ITSELF = "a: &a {b: [*a]}\n"
MERGED_ITSELF = "a: &a {<<: *a}\n"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (LAUGHS, "aliases stand for more than"),
        (MERGES, "aliases stand for more than"),
        (ITSELF, "contains itself"),
        (MERGED_ITSELF, "contains itself"),
        ("[" * 5_000, "nested deeper"),
        ("- " * 5_000, "nested deeper"),
        ("a: 2026-13-45", "not valid YAML"),
        ("a: 1\na: 2", "stands twice"),
        ("{[a]: 1}", "not valid YAML"),
        ("a: !!python/object/apply:os.system [id]", "not valid YAML"),
        ("a: " + "9" * 5_000, "not valid YAML"),
        ("a: \x00", "not valid YAML"),
        ("a: 1\n---\nb: 2", "2 documents"),
    ],
)
def test_yaml_that_is_none_or_stands_for_too_much_is_refused_at_once(text, part):
    began = time.perf_counter()

    with pytest.raises(InputError, match=part) as raised:
        load_yaml(text, "w.yaml")

    assert str(raised.value).startswith("w.yaml: ")
    assert time.perf_counter() - began < 2


def test_yaml_with_honest_aliases_and_merges_is_read():
    assert load_yaml("a: &a {k: 1}\nb: {<<: *a, l: 2}\nc: [*a, *a]", "w") == {
        "a": {"k": 1}, "b": {"k": 1, "l": 2}, "c": [{"k": 1}, {"k": 1}],
    }  # fmt: skip
    assert load_yaml("", "w") is None
    assert load_yaml_documents("a: 1\n---\nb: 2", "w") == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 150 + "1" + "}" * 150, "{", "9" * 5_000, "\x00"])
def test_json_that_is_none_or_too_deep_is_refused(text):
    with pytest.raises(InputError, match=r"^w: "):
        load_json(text, "w")


def test_json_of_an_honest_depth_is_read():
    deep = {"a": [[[1]]]}

    assert load_json(json.dumps(deep), "w") == deep


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (",".join(f"c{n}" for n in range(1_000_000)) + "\n1\n", "1,000,000 columns"),
        ("a,a\n1,2\n", "the column a stands twice"),
        ("a,b\n1,2\n1,2,3\n", "row 3: more cells"),
        ('a\n"' + "x" * 200_000 + '"\n', "field larger"),
    ],
)
def test_csv_that_is_none_is_refused_with_its_row(text, part):
    with pytest.raises(InputError, match=part):
        csv_rows(text, "w.csv")


def test_a_short_row_of_a_csv_has_empty_cells():
    assert csv_rows("a,b\n1\n\n2,3\n", "w") == [{"a": "1", "b": ""}, {"a": "2", "b": "3"}]


def test_a_csv_of_a_million_columns_is_refused_before_it_is_parsed(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text(",".join(f"c{n}" for n in range(1_000_000)) + "\n" + ",".join(["1"] * 1_000_000) + "\n")

    with pytest.raises(InputError, match=r"longer than|columns"):
        read_arrow_table(file)


def test_a_head_without_an_end_is_refused(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("x" * 5_000_000)

    with pytest.raises(InputError, match="first line is longer"):
        column_names(file)


def test_a_gzip_that_grows_out_of_measure_is_refused(tmp_path):
    file = tmp_path / "t.csv.gz"
    file.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 20_000_000))

    with pytest.raises(InputError, match="100 times its size"):
        read_arrow_table(file)
    with pytest.raises(InputError, match="100 times its size"):
        read_packed(file)


@pytest.mark.parametrize("cut", [5, 20, 24])
def test_a_damaged_gzip_is_refused(tmp_path, cut):
    file = tmp_path / "t.csv.gz"
    file.write_bytes(gzip.compress(b"a,b\n1,2\n")[:cut])

    with pytest.raises(InputError, match=str(file)):
        read_arrow_table(file)


def test_a_packed_csv_is_read(tmp_path):
    file = tmp_path / "t.csv.gz"
    file.write_bytes(gzip.compress(b"a,b\n1,2\n"))

    assert read_arrow_table(file).to_pylist() == [{"a": 1, "b": 2}]


def test_a_file_beyond_the_limit_is_refused(tmp_path):
    file = tmp_path / "t"
    file.write_bytes(b"x" * (2**20 + 1))

    with pytest.raises(InputError, match="larger than 1 MiB"):
        read_bytes(file, most_mib=1)


@pytest.mark.parametrize("place", ["absent", ".", "a\x00b"])
def test_a_file_that_cannot_be_read_says_so(tmp_path, place):
    with pytest.raises(InputError, match="cannot read"):
        read_text(tmp_path / place)


def test_a_cell_that_is_no_number_is_named_with_its_row(tmp_path):
    table = pa.table({"t_s": ["1", "two"]})

    with pytest.raises(InputError, match=r"w row 3: t_s is not a number \(saw 'two'\)"):
        floats(table, "t_s", "w")


def test_texts_of_a_parquet_file_that_are_no_utf_8_are_refused(tmp_path):
    file = tmp_path / "t.parquet"
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe"))
    pq.write_table(pa.table({"a": broken}), file)

    with pytest.raises(InputError, match="not a readable Parquet"):
        read_arrow_table(file)


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_moments_that_no_calendar_has_are_missing_and_the_others_are_there(tmp_path, unit):
    moments = pa.array([0, 2**40 * {"s": 1, "ms": 10**3, "us": 10**6}[unit], None], pa.int64())
    pq.write_table(pa.table({"at": moments.cast(pa.timestamp(unit, tz="UTC"))}), tmp_path / "t.parquet")

    at = read_arrow_table(tmp_path / "t.parquet")["at"].to_pylist()

    assert at == [datetime(1970, 1, 1, tzinfo=UTC), None, None]


def test_a_zone_whose_name_is_no_text_is_a_damaged_file(tmp_path):
    table = pa.table({"at": pa.array([0], pa.timestamp("us", tz="QQQQQQ"))})
    pq.write_table(table, tmp_path / "whole.parquet")
    kept = base64.b64decode(pq.read_metadata(tmp_path / "whole.parquet").metadata[b"ARROW:schema"])
    damaged = base64.b64encode(kept.replace(b"QQQQQQ", b"\xc5QQQQQ"))
    content = (tmp_path / "whole.parquet").read_bytes().replace(base64.b64encode(kept), damaged)
    (tmp_path / "t.parquet").write_bytes(content)

    with pytest.raises(InputError, match="not a readable Parquet"):
        read_arrow_table(tmp_path / "t.parquet")
    with pytest.raises(BundleError, match="not a readable Parquet"):
        open_parquet(tmp_path / "t.parquet")
