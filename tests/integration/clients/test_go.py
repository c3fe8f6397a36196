"""The Go package and docs/clients/go.md."""

import re

import pytest
from languages import ROOT, needs, run


@pytest.fixture(autouse=True)
def go():
    needs("go")
    version = re.search(r"go1\.(\d+)", run("go version", ROOT))
    if int(version[1]) < 24:
        pytest.skip("no Go 1.24 or newer")


def test_generated_code_is_up_to_date():
    run("scripts/generate-clients --check go", ROOT)


def test_the_package(suite):
    suite("test -z \"$(gofmt -l .)\" && go vet ./... && go test -count 1 -v ./...", "client/go",
          r"^--- (?P<outcome>PASS|FAIL|SKIP): (?P<name>\w+)")


def test_the_page(page, expected):
    page.rotates(expected)
