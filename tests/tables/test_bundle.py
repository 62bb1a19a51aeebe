import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.tables.bundles import META, allocation, tables, usage

from trimtab.errors import BundleError, InputError, UnknownName
from trimtab.tables import bundle as bundle_module
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import memory_bundle, meta_text, parse_meta, read_bundle, write_bundle
from trimtab.tables.schemas import TABLES
from trimtab.tables.workloads import Workloads, WorkloadSpec


def test_a_bundle_reads_back_as_it_was_written(tmp_path):
    given = tables()
    workloads = Workloads(workloads={"prod/chat": WorkloadSpec(team="chat", min_replicas=2)})

    write_bundle(tmp_path / "fleet", given, META, workloads)
    bundle = read_bundle(tmp_path / "fleet")

    assert bundle.meta == META
    assert bundle.workloads == workloads
    for name, table in given.items():
        assert bundle.table(name, table.column_names).equals(table)


def test_histograms_are_read_only_when_asked_for(tmp_path):
    bundle = write_bundle(tmp_path / "fleet", tables(), META)

    assert "activity_histogram" not in bundle.table("gpu_usage").column_names
    assert len(bundle.table("gpu_usage", ["activity_histogram"])[0][0]) == 101


def test_a_projection_keeps_the_order_asked_for(tmp_path):
    bundle = write_bundle(tmp_path / "fleet", tables(), META)

    assert bundle.table("nodes", ["region", "node"]).column_names == ["region", "node"]


def test_an_absent_optional_table_reads_as_empty(tmp_path):
    bundle = write_bundle(tmp_path / "fleet", tables(), META)

    assert not bundle.has("demand")
    assert bundle.table("demand").num_rows == 0


def test_a_bundle_in_memory_reads_like_one_on_disk(tmp_path):
    held, written = memory_bundle(tables(), META), write_bundle(tmp_path / "fleet", tables(), META)

    for name in TABLES:
        assert held.table(name).equals(written.table(name))


def test_writing_again_replaces_the_bundle_and_leaves_nothing_beside_it(tmp_path):
    write_bundle(tmp_path / "fleet", tables(demand=[]), META)
    write_bundle(tmp_path / "fleet", tables(), META)

    assert [path.name for path in tmp_path.iterdir()] == ["fleet"]
    assert not read_bundle(tmp_path / "fleet").has("demand")


def test_a_folder_that_is_no_bundle_is_not_overwritten(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("years of work")

    with pytest.raises(InputError, match="not a fleet bundle"):
        write_bundle(tmp_path / "precious", tables(), META)
    assert (tmp_path / "precious" / "thesis.txt").is_file()


def test_a_failed_write_leaves_the_former_bundle_in_place(tmp_path):
    write_bundle(tmp_path / "fleet", tables(), META)

    with pytest.raises(BundleError):
        write_bundle(tmp_path / "fleet", {"nodes": pa.table({"node": ["n0"]})}, META)
    assert read_bundle(tmp_path / "fleet").table("devices").num_rows == 1


def test_every_fault_of_a_table_is_named_at_once():
    table = pa.table({"devise": ["GPU-0"], "node": [None]})

    with pytest.raises(BundleError) as raised:
        memory_bundle({"devices": table}, META)

    text = str(raised.value)
    assert "did you mean device" in text
    assert "column device is missing" in text
    assert "column gpu is missing" in text
    assert "devices row 0: column node is null" in text


def test_rows_with_an_unknown_key_are_refused_with_near_matches():
    with pytest.raises(UnknownName, match="did you mean workload"):
        table_from_rows("allocations", [allocation(worklaod="x")])


def test_a_misspelt_table_or_column_gets_near_matches():
    bundle = memory_bundle(tables(), META)

    with pytest.raises(UnknownName, match="gpu_usage"):
        bundle.table("gpu_usages")
    with pytest.raises(UnknownName, match="sm_active_mean"):
        bundle.table("gpu_usage", ["sm_activ_mean"])


def test_a_folder_without_meta_says_what_a_bundle_is(tmp_path):
    with pytest.raises(InputError, match="trimtab collect"):
        read_bundle(tmp_path)


def test_a_newer_bundle_asks_for_a_newer_trimtab():
    with pytest.raises(BundleError, match="update trimtab"):
        parse_meta(meta_text(META).replace("version: 1", "version: 7"))


def test_the_meta_text_reads_back():
    assert parse_meta(meta_text(META)) == META


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("start: 2026-09-02T00:00:00Z\nend: 2026-09-01T00:00:00Z", "not before end"),
        ("start: 2026-09-01T00:00:00\nend: 2026-09-02T00:00:00Z", "timezone"),
        ("strat: 1", "did you mean start"),
        ("- a list", "must hold a mapping"),
        ("a: [1", "not valid YAML"),
    ],
)
def test_a_faulty_meta_file_is_refused_with_its_place(text, part):
    with pytest.raises(BundleError, match=part):
        parse_meta(text, where="fleet/bundle.yaml")


@pytest.mark.parametrize(("keep", "what"), [(0, "empty"), (100, "truncated")])
def test_a_damaged_table_says_which_file(tmp_path, keep, what):
    bundle = write_bundle(tmp_path / "fleet", tables(), META)
    file = tmp_path / "fleet" / "nodes.parquet"
    file.write_bytes(file.read_bytes()[:keep])

    with pytest.raises(BundleError, match=rf"nodes\.parquet.*{what}"):
        bundle.table("nodes")


@pytest.mark.parametrize("written", [True, False])
def test_pieces_are_the_table_in_order_a_few_rows_at_a_time(tmp_path, monkeypatch, written):
    monkeypatch.setattr(bundle_module, "PIECE_ROWS", 4)
    given = tables(gpu_usage=[usage(hour=hour) for hour in range(10)])
    bundle = write_bundle(tmp_path / "fleet", given, META) if written else memory_bundle(given, META)

    pieces = list(bundle.pieces("gpu_usage", ["hour", "device"]))

    assert [piece.num_rows for piece in pieces] == [4, 4, 2]
    assert pa.concat_tables(pieces).equals(bundle.table("gpu_usage", ["hour", "device"]))
    # neither a table that is not there nor one without rows has any
    assert [piece.num_rows for piece in bundle.pieces("demand", ["workload"])] == [0]
    empty = write_bundle(tmp_path / "empty", tables(gpu_usage=[]), META)
    assert [piece.num_rows for piece in empty.pieces("gpu_usage", ["hour"])] == [0]


def test_pieces_of_an_older_bundle_have_the_columns_that_it_lacks_as_nulls(tmp_path):
    bundle = write_bundle(tmp_path / "fleet", tables(), META)
    file = tmp_path / "fleet" / "devices.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["mig_profile"]), file)

    (piece,) = bundle.pieces("devices", ["mig_profile", "device"])
    assert piece.equals(bundle.table("devices", ["mig_profile", "device"]))


def test_damage_far_into_a_file_is_named_by_pieces_too(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle_module, "PIECE_ROWS", 100)
    rows = [usage(hour=hour, device=f"node-a/gpu-{hour}") for hour in range(1000)]
    bundle = write_bundle(tmp_path / "fleet", tables(gpu_usage=rows), META)
    file = tmp_path / "fleet" / "gpu_usage.parquet"
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(0)
    raw = bytearray(file.read_bytes())
    first, size = chunk.dictionary_page_offset, chunk.total_compressed_size
    raw[first + size // 4 : first + size] = bytes(size - size // 4)
    file.write_bytes(raw)

    for read in (lambda: bundle.table("gpu_usage", ["device"]), lambda: list(bundle.pieces("gpu_usage", ["device"]))):
        with pytest.raises(BundleError, match=r"gpu_usage\.parquet: the file is damaged"):
            read()


def test_a_nullable_column_that_an_older_bundle_lacks_reads_as_null(tmp_path):
    bundle = write_bundle(tmp_path / "fleet", tables(), META)
    file = tmp_path / "fleet" / "devices.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["mig_profile"]), file)

    assert bundle.table("devices")["mig_profile"].null_count == 1


def test_a_histogram_with_the_wrong_number_of_bins_is_refused():
    with pytest.raises(BundleError, match="101 bins"):
        tables(gpu_usage=[usage(activity_histogram=[1, 2, 3])])
