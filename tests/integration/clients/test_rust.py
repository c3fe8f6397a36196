"""The Rust crate and docs/clients/rust.md."""

import pytest
from languages import ROOT, needs, run


@pytest.fixture(autouse=True)
def rust():
    needs("cargo", "cc")


def test_generated_code_is_up_to_date():
    run("scripts/generate-clients --check rust", ROOT)


def test_the_package(suite):
    suite("cargo test --locked", "client/rust", r"^test (?P<name>\S+) \.\.\. (?P<outcome>\w+)")


def test_the_page(page, expected):
    page.rotates(expected)
