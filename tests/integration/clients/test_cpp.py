"""The commands of docs/clients/cpp.md, and that the C++ client retries as the others do."""

import json
import re

from languages import ROOT


def test_the_page(page):
    printed = page.run(page.blocks()[0]).splitlines()[-1]
    page.shows(printed)


def test_the_retry_policy_is_that_of_all_clients():
    """client/service_config.json is the policy; posenc/client/retry.h has the client's defaults."""
    [method] = json.loads((ROOT / "client" / "service_config.json").read_text())["methodConfig"]
    header = (ROOT / "posenc" / "client" / "retry.h").read_text()
    number = dict(re.findall(r"(\w+) = (?:std::chrono::\w+\()?([\d.]+)", header))
    assert method["name"] == [{"service": "posenc.v1.PositionalEncodingService"}]
    assert method["retryPolicy"] == {
        "maxAttempts": int(number["max_attempts"]), "initialBackoff": f"{int(number['initial_backoff']) / 1000}s",
        "maxBackoff": f"{number['max_backoff']}s", "backoffMultiplier": float(number["multiplier"]),
        "retryableStatusCodes": ["UNAVAILABLE", "UNKNOWN"]}
    assert "initial_backoff = std::chrono::milliseconds(" in header and "max_backoff = std::chrono::seconds(" in header
