"""A call that is refused is told what to do instead."""

import pytest
from click.testing import CliRunner

from trimtab.cli import root


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(root, arguments)

    assert done.exit_code == 2
    return done.output.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "cure"),
    [
        (("emit", "-d", "gitops"), "Use --out DIRECTORY."),
        (("collect", "-o", "fleet/"), "Use --out DIRECTORY."),
        (("fit", "llama-3.1-8b", "--qps", "5"), "Use --rate 20."),
        (("audit", "--since", "14d"), "Use --from TIME."),
        (("prices", "--date", "2026-07-20"), "Use --at DATE."),
        (("audit", "--json"), "Use -o json."),
        (("audit", "--bundle", "fleet"), "The folder of a bundle is given without an option: root audit fleet/."),
    ],
)
def test_an_option_of_other_programs_is_answered_with_the_one_that_does_it(arguments, cure):
    assert refused(*arguments).endswith(cure)


def test_a_folder_given_as_the_format_is_told_the_option_that_writes_a_folder():
    assert refused("emit", "-o", "gitops").endswith("-o is the format; a folder is named with --out: --out gitops.")


@pytest.mark.parametrize(
    ("file", "cure"),
    [("report.html", "-o html --out report.html."), ("audit.md", "-o markdown --out audit.md."), ("x", "--out x.")],
)
def test_a_file_given_as_the_format_is_told_both_options(file, cure):
    assert refused("audit", "-o", file).endswith(f"-o is the format; a file is named with --out: {cure}")


def test_the_name_of_a_demonstration_given_as_a_bundle_is_told_the_option():
    assert refused("audit", "two-hundred-k").endswith("A demonstration is given as root audit --demo two-hundred-k.")


def test_a_file_given_as_a_bundle_is_told_what_a_bundle_is(tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text("{}")

    assert refused("audit", str(plan)).endswith("A bundle is a folder that `trimtab collect` wrote.")


def test_a_bundle_that_is_not_there_is_told_what_writes_one():
    assert refused("allocate", "fleett").endswith("`trimtab collect --out FOLDER` writes a bundle.")


def test_an_argument_that_is_missing_is_shown_by_the_first_example_of_the_command():
    done = CliRunner().invoke(root, ["verify"], prog_name="trimtab")

    assert (
        done.output.splitlines()[-1] == "Error: Missing argument 'BUNDLE'. For example: trimtab verify fleet-in-march/"
    )


def test_a_refusal_that_says_enough_stays_as_it_is():
    assert refused("emit", "--autoscaler", "kda").endswith("'kda' is not one of 'keda', 'hpa'.")
    assert refused("audit", "--nonesuch").startswith("Error: No such option '--nonesuch'.")
