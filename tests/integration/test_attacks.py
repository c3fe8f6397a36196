"""The attacks of scripts/attack, for a second each."""

import attack
import call_attacks
import http2_attacks
import pytest
from front import PROGRAM


def run(attack_, server_program):
    wrong, (p99, longest), memory = attack.run_attack(attack_, server_program, seconds=1)
    print(f"{attack_.__doc__} p99 {1000 * p99:.1f} ms, longest {1000 * longest:.1f} ms, memory {attack.describe(memory)} MiB")
    # No test depends on a time: scripts/attack also limits the honest caller's times and the drain's.
    assert [fault for fault in wrong if not fault.startswith(("p99", "the drain"))] == []


@pytest.mark.parametrize("attack_", call_attacks.ATTACKS, ids=lambda attack_: attack_.__name__)
def test_an_attack_harms_nobody_else(server_program, attack_):
    run(attack_, server_program)


@pytest.mark.skipif(PROGRAM is None, reason="no haproxy")
@pytest.mark.parametrize("attack_", http2_attacks.ATTACKS, ids=lambda attack_: attack_.__name__)
def test_the_front_withstands_an_attack_on_http2(server_program, attack_):
    run(attack_, server_program)
