"""The attacks of scripts/attack, for a second each."""

import attack
import call_attacks
import pytest
from front import PROGRAM


@pytest.mark.parametrize("attack_", call_attacks.ATTACKS, ids=lambda attack_: attack_.__name__)
def test_an_attack_harms_nobody_else(server_program, attack_):
    if PROGRAM is None and attack.is_proxied(attack_, None):
        pytest.skip("no haproxy")
    wrong, (p99, longest), memory = attack.run_attack(attack_, server_program, seconds=1)
    print(f"{attack_.__doc__} p99 {1000 * p99:.1f} ms, longest {1000 * longest:.1f} ms, memory {attack.describe(memory)} MiB")
    # No test depends on a time: scripts/attack also limits the honest caller's times and the drain's.
    assert [fault for fault in wrong if not fault.startswith(("p99", "the drain"))] == []
