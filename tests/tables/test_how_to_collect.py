from pathlib import Path

from trimtab.emit.manifests.cluster_file import parse_cluster_file
from trimtab.tables.workloads import WorkloadKind, parse_workloads

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "collect.md"


def examples():
    return [block.split("```")[0] for block in PAGE.read_text(encoding="utf-8").split("```yaml\n")[1:]]


def test_the_example_of_the_page_is_a_valid_file():
    (text,) = (example for example in examples() if "metrics:" not in example)

    workloads = parse_workloads(text)

    assert workloads.spec("prod/chat").kind is WorkloadKind.SERVING
    assert workloads.spec("research/pretrain").interruptible is True


def test_the_declared_metrics_of_the_page_are_a_valid_file():
    (text,) = (example for example in examples() if "metrics:" in example)

    workloads = parse_cluster_file(text, where="collect.md").workloads

    assert workloads["prod/rerank"].metrics.as_fact() is not None
    assert workloads["prod/ocr"].metrics.as_metrics().only == ('service="prod-ocr-80@kubernetes"',)
