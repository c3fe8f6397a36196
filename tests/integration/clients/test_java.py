"""The Java package, whose build generates its messages, and docs/clients/java.md."""

import pytest
from languages import needs


@pytest.fixture(autouse=True)
def maven():
    needs("mvn", "javac")


def test_the_package(suite):
    suite("mvn --batch-mode -Dsurefire.reportFormat=plain -Dsurefire.useFile=false test", "client/java",
          r"^\[\w+\] dev\.posenc\.(?P<name>\w+\.\w+) -- Time elapsed: \S+ s(?P<outcome>.*)$")


def test_the_page(page, expected):
    page.rotates(expected)
