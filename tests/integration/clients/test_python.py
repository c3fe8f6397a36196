"""The Python package, by its own tests of the installed wheel; docs/clients/python.md is among them."""


def test_the_package(suite):
    suite("client/python/run-tests", ".", r"^(?P<name>\S+::.+?) (?P<outcome>PASS|FAIL|ERROR)")
