"""The attacks of scripts/attack, for a second each."""

import attack
import call_attacks
import http_attacks
import pytest
from front import PROGRAM


# Over HTTP, each also through the proxy.
WAYS = [(attack_, None) for attack_ in call_attacks.ATTACKS] + [(attack_, True) for attack_ in http_attacks.HTTP_ATTACKS]


@pytest.mark.parametrize("attack_, proxied", WAYS, ids=[f"{attack_.__name__}{'-proxied' if proxied else ''}" for attack_, proxied in WAYS])
def test_an_attack_harms_nobody_else(server_program, attack_, proxied):
    if PROGRAM is None and attack.is_proxied(attack_, proxied):
        pytest.skip("no haproxy")
    wrong, (p99, longest), memory = attack.run_attack(attack_, server_program, 1, proxied)
    print(f"{attack_.__doc__} p99 {1000 * p99:.1f} ms, longest {1000 * longest:.1f} ms, memory {attack.describe(memory)} MiB")
    # No test depends on a time: scripts/attack also limits the honest caller's times and the drain's.
    assert [fault for fault in wrong if not fault.startswith(("p99", "the drain"))] == []
