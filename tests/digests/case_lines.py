"""The lines of the digest files: words NAME=VALUE, and the digest."""


def parse(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def read(path):
    """Yields (line, case, digest)."""
    for line in path.read_text().splitlines():
        *words, digest = line.split()
        yield line, {key: parse(value) for key, value in (word.split("=") for word in words)}, digest
