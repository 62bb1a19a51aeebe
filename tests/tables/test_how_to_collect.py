from pathlib import Path

from trimtab.tables.workloads import WorkloadKind, parse_workloads

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "collect.md"


def test_the_example_of_the_page_is_a_valid_file():
    text = PAGE.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]

    workloads = parse_workloads(text)

    assert workloads.spec("prod/chat").kind is WorkloadKind.SERVING
    assert workloads.spec("research/pretrain").interruptible is True
