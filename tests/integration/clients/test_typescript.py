"""The TypeScript package and docs/clients/typescript.md."""

import re

import pytest
from languages import ROOT, needs, run


@pytest.fixture(autouse=True)
def node():
    needs("node", "npm")
    if int(re.match(r"v(\d+)", run("node --version", ROOT))[1]) < 20:
        pytest.skip("no Node 20 or newer")


def test_generated_code_is_up_to_date():
    run("scripts/generate-clients --check typescript", ROOT)


def test_the_package(suite):
    # tsc also compiles the misspelt requests of test/misspelt.test.ts, each of which must be an error.
    suite("npm ci --ignore-scripts --no-audit --no-fund --silent && npm test", "client/typescript",
          r"^(?P<outcome>(not )?ok) \d+ - (?P<name>.*)$")


def test_the_page(page, expected):
    page.rotates(expected)
