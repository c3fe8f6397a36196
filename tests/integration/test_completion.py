"""Types into shells whose completion `posenc completion` set up: a tab must complete commands, flags, values and files."""

import os
import pty
import select
import shutil
import subprocess
import time

import pytest
from client import SECONDS

BASH = ("bash", "--norc", "--noprofile", "-i")
ZSH = ("zsh", "-f", "-i")

# What is typed, and what the completed command prints.
TYPED = [
    ("posenc help ro\t\n", "Rotates q and, optionally, k"),
    ("posenc version --js\t\n", '{"version":'),
    ("posenc completion fi\t\n", "complete -c posenc"),
    ("posenc rope --layout bs\t\n", "--q FILE"),
    ("posenc rope --layout=th\t\n", "--q FILE"),
    ("posenc explain --model conf\t\n", "inv_freq (rad/token)"),
    ("posenc explain conf\t\n", "inv_freq (rad/token)"),
]


@pytest.fixture
def environment(command_program, tmp_path, configs):
    """The environment of a user who has the command in PATH and a config.json in the working directory."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "posenc").symlink_to(shutil.which(command_program[0]))
    shutil.copy(configs / "llama-3.1-8b.json", tmp_path / "config.json")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("POSENC_", "ZDOTDIR"))}
    return kept | {"PATH": f"{tmp_path / 'bin'}:{kept['PATH']}", "HOME": str(tmp_path), "TERM": "dumb", "PS1": "> "}


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, command, folder, environment):
        self._terminal, of_shell = pty.openpty()
        # Not pty.fork(): this process may use gRPC, which waits for its own threads then, sometimes for ever.
        self._shell = subprocess.Popen(["setsid", "--ctty", *command], stdin=of_shell, stdout=of_shell, stderr=of_shell,
                                       cwd=folder, env=environment)
        os.close(of_shell)

    def type(self, keys, expected):
        """Types the keys and waits until the shell has printed the text."""
        os.write(self._terminal, keys.encode())
        said, deadline = "", time.monotonic() + SECONDS
        while expected not in said:
            ready, _, _ = select.select([self._terminal], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{keys!r} did not print {expected!r}: {said}"
            said += os.read(self._terminal, 1 << 16).decode(errors="replace").replace("\r", "")
            assert "did you mean" not in said, said  # the word was not completed

    def close(self):
        self._shell.kill()
        self._shell.wait()
        os.close(self._terminal)


@pytest.mark.parametrize("command, setup", [
    (BASH, "source <(posenc completion bash)"),
    (ZSH, "autoload -U compinit && compinit -u -D; source <(posenc completion zsh)"),
], ids=("bash", "zsh"))
def test_a_tab_completes_the_word(tmp_path, environment, command, setup):
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
    shell = Terminal(command, tmp_path, environment)
    try:
        shell.type(f"{setup}; echo rea''dy\n", "ready")
        for keys, expected in TYPED:
            shell.type(keys, expected)
    finally:
        shell.close()


@pytest.mark.parametrize("line, words", [
    ("posenc help ro", {"rope"}),
    ("posenc version --js", {"--json"}),
    ("posenc completion fi", {"fish"}),
    ("posenc rope --layout bs", {"bshd"}),
    ("posenc explain --model conf", {"config.json"}),
    ("posenc explain conf", {"config.json"}),
])
def test_fish_completes_the_word(tmp_path, environment, line, words):
    if shutil.which("fish") is None:
        pytest.skip("no fish")
    said = subprocess.run(["fish", "--no-config", "-c", f"posenc completion fish | source; complete -C '{line}'"],
                          cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert set(said.stdout.split()) == words
