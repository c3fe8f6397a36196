"""A dry run of packaging/release: small files in place of those that builders make, and a key made for the test."""

import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile

import pytest
from conftest import ROOT
from test_sbom import apt_with, check_spdx, make_package, relations, run, suite_of

PORTABLE = ("posenc/licences/LLVM", "posenc/licences/libprotobuf-dev", "posenc/licences/libmpfr-dev")
WHEELS = {
    "posenc-0.1.0-py3-none-manylinux_2_35_x86_64.whl": ("posenc/libposenc.so", "posenc.libs/libfmt-0.so",
                                                        "posenc/licences/GPL-3", "posenc/licences/libfmt-dev"),
    "posenc-0.1.0-py3-none-manylinux_2_27_x86_64.whl": ("posenc/libposenc.so", *PORTABLE),
    "posenc-0.1.0-py3-none-manylinux_2_27_aarch64.whl": ("posenc/libposenc.so", *PORTABLE),
    "posenc-0.1.0-py3-none-any.whl": (),
}
METADATA = """Metadata-Version: 2.1
Name: posenc
Version: 0.1.0
Requires-Dist: numpy>=1.24
Requires-Dist: torch>=2.4; extra == "torch"
"""
# Stands in for scripts/package: prints the paths of small files.
PACKAGE = """#!/bin/sh
case "$1" in
  python) ls {files}/*_2_35_*.whl ;;
  wheels) ls {files}/*_2_27_*.whl {files}/*-any.whl ;;
  *) ls {files}/*.deb ;;
esac
"""
DOCKER = """#!/bin/sh
[ "$1" != version ] || [ -z "$NO_DOCKER" ] || exit 1
[ "$1" != save ] || cp {files}/image.tar "$3"
"""
HELM = """#!/bin/sh
tar -czf "$4/posenc-0.1.0.tgz" -C "$2/.." posenc
"""


def make_script(path, text):
    path.write_text(text)
    path.chmod(0o755)


def make_image(path):
    """An image as docker save writes it, with a bill of materials in its one layer."""
    folder = path.parent / "layer"
    (folder / "usr/share/sbom").mkdir(parents=True)
    (folder / "usr/share/sbom/posenc-server.spdx.json").write_text('{"packages": [{"name": "posenc-server-image"}]}')
    with tarfile.open(path.parent / "layer.tar", "w") as layer:
        layer.add(folder / "usr", "usr")
    (path.parent / "manifest.json").write_text('[{"Layers": ["layer.tar"]}]')
    with tarfile.open(path, "w") as image:
        for name in ("manifest.json", "layer.tar"):
            image.add(path.parent / name, name)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A clean checkout of this tree as it is now, in which scripts/package, docker and, where there is none, helm are stand-ins."""
    files, tree = tmp_path_factory.mktemp("files"), tmp_path_factory.mktemp("tree")
    make_package(files)
    make_image(files / "image.tar")
    for name, contents in WHEELS.items():
        with zipfile.ZipFile(files / name, "w") as wheel:
            for member in contents:
                wheel.writestr(member, "")
            wheel.writestr("posenc-0.1.0.dist-info/METADATA", METADATA)
    # Without the largest folders, which neither a stand-in nor packaging/versions reads.
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", ":!tests", ":!posenc", ":!server",
                 ":!docs/gallery", cwd=ROOT).split("\0")
    present = [name for name in listed if name and (ROOT / name).is_file()]
    subprocess.run(["xargs", "-0", "cp", "--parents", "-t", tree], input="\0".join(present), text=True, cwd=ROOT, check=True)
    make_script(tree / "scripts/package", PACKAGE.format(files=files))
    programs = tree / "build/bin"  # ignored by git
    programs.mkdir(parents=True)
    make_script(programs / "docker", DOCKER.format(files=files))
    if not shutil.which("helm"):
        helm = ROOT / "build/chart/bin/helm"
        make_script(programs / "helm", f'#!/bin/sh\nexec {helm} "$@"\n' if helm.exists() else HELM)
    git = ("git", "-C", tree, "-c", "user.name=test", "-c", "user.email=test@packages.invalid")
    run(*git, "init", "--quiet")
    run(*git, "add", "--all")
    run(*git, "commit", "--quiet", "--no-verify", "--message", "test")
    return tree


def make_key(name):
    """A folder for gpg with a new key, and the key's fingerprint. The path is short, because it is that of a socket."""
    home = tempfile.mkdtemp(prefix="gpg")
    environment = {**os.environ, "GNUPGHOME": home}
    run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", f"{name} <{name}@packages.invalid>", "ed25519", "sign",
        env=environment)
    listed = run("gpg", "--batch", "--with-colons", "--fingerprint", env=environment)
    return home, re.search(r"^fpr:+(\w+):", listed, re.MULTILINE)[1]


@pytest.fixture(scope="module")
def keys():
    made = {name: make_key(name) for name in ("maintainer", "stranger")}
    yield made
    for home, _ in made.values():
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def release(checkout, keys):
    """A function that runs packaging/release with a person's gpg, and expects it to succeed or to fail with a message."""
    def call(*arguments, of="maintainer", fails=None, **more):
        environment = {**more, **os.environ, "GNUPGHOME": keys[of][0], "SOURCE_DATE_EPOCH": "1700000000",
                       "PATH": f"{checkout}/build/bin:{os.environ['PATH']}"}
        ended = subprocess.run([checkout / "packaging/release", *map(str, arguments)], capture_output=True, text=True,
                               env=environment)
        said = ended.stdout + ended.stderr
        assert (ended.returncode == 0) == (fails is None), said
        assert fails is None or re.search(fails, said), said
        return said

    return call


@pytest.fixture(scope="module")
def made(release, keys, tmp_path_factory):
    directory = tmp_path_factory.mktemp("release")
    release("build", directory, "--source", "https://git.example/posenc")
    said = release("sign", directory, "--key", keys["maintainer"][1])
    assert "twine upload" in said
    return directory


@pytest.fixture
def copy(made, tmp_path):
    return shutil.copytree(made, tmp_path / "copy")


def test_all_places_have_the_same_version():
    run(ROOT / "packaging" / "versions")


def test_a_signed_release_verifies(release, made, keys):
    fingerprint = keys["maintainer"][1]
    assert "7 files of git+https://git.example/posenc, commit " in release("verify", made, "--key", fingerprint)
    release("verify", made, "--key", keys["stranger"][1], fails=f"are by the key {fingerprint}")
    release("verify", made, of="stranger", fails=r"SHA256SUMS\.asc is no good signature")


def test_the_provenance_is_a_statement_of_in_toto(made, checkout):
    statement = json.loads((made / "provenance.json").read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    names = {subject["name"] for subject in statement["subject"]}
    assert names == {*WHEELS, "posenc-test_1.2_all.deb", "posenc-0.1.0.tgz", "posenc-server-0.1.0.tar"}
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {"source": "git+https://git.example/posenc", "version": "0.1.0"}
    commit = run("git", "-C", checkout, "rev-parse", "HEAD").strip()
    assert definition["resolvedDependencies"] == [{"uri": "git+https://git.example/posenc", "digest": {"gitCommit": commit}}]
    assert statement["predicate"]["runDetails"]["builder"]["id"] == "git+https://git.example/posenc#packaging/release"


@pytest.mark.parametrize("name, has, lacks", [
    ("posenc-0.1.0-py3-none-manylinux_2_35_x86_64.whl", {("CONTAINS", "libfmt-dev"), ("STATIC_LINK", "nlohmann-json3-dev"),
                                                         ("DEPENDS_ON", "numpy")}, {"GPL-3", "torch"}),
    ("posenc-0.1.0-py3-none-manylinux_2_27_aarch64.whl", {("STATIC_LINK", "protobuf"), ("STATIC_LINK", "mpfr4"),
                                                          ("STATIC_LINK", "libc--"), ("DEPENDS_ON", "numpy")}, {"LLVM"}),
    ("posenc-0.1.0-py3-none-any.whl", {("DEPENDS_ON", "numpy")}, {"protobuf", "nlohmann-json3-dev"}),
    ("posenc-0.1.0.tgz", {("DEPENDS_ON", "posenc-container")}, {"nlohmann-json3-dev"}),
    ("posenc-test_1.2_all.deb", {("DEPENDS_ON", "libc6")}, set()),
])
def test_the_bill_names_what_is_in_a_file(made, name, has, lacks):
    bill = check_spdx((made / f"{name}.spdx.json").read_text())
    assert bill["packages"][0]["packageFileName"] == name
    assert {(relation, f"SPDXRef-{other}") for relation, other in has} <= relations(bill)
    assert not lacks & {package["name"] for package in bill["packages"]}


def test_a_wheel_without_licences_has_no_bill(tmp_path):
    path = tmp_path / "posenc-0.1.0-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("posenc/libposenc.so", "")
        wheel.writestr("posenc-0.1.0.dist-info/METADATA", METADATA)
    ended = subprocess.run([ROOT / "deploy/write-sbom", "wheel", path], capture_output=True, text=True)
    assert ended.returncode == 1 and "has no posenc/licences/" in ended.stderr


def test_the_bill_of_the_image_is_the_one_in_it(made):
    assert json.loads((made / "posenc-server-0.1.0.tar.spdx.json").read_text()) == {"packages": [{"name": "posenc-server-image"}]}


def test_signing_again_changes_nothing_but_signatures(release, copy, made, keys):
    release("sign", copy, "--key", keys["maintainer"][1])
    release("verify", copy)
    for path in made.rglob("*"):
        if path.is_file() and path.name not in ("InRelease", "Release.gpg", "SHA256SUMS") and path.suffix != ".asc":
            assert (copy / path.relative_to(made)).read_bytes() == path.read_bytes(), path


def append(path):
    with open(path, "ab") as file:
        file.write(b" ")


@pytest.mark.parametrize("name", ["posenc-0.1.0.tgz", "posenc-0.1.0.tgz.spdx.json",
                                  "apt/pool/posenc-test_1.2_all.deb", "SHA256SUMS", "provenance.json"])
def test_verify_names_a_changed_or_absent_file(release, copy, name):
    append(copy / name)
    release("verify", copy, fails=re.escape(name))
    (copy / name).unlink()
    release("verify", copy, fails=re.escape(name))


def test_verify_names_a_file_that_is_not_listed(release, copy):
    (copy / "more.whl").write_text("")
    release("verify", copy, fails="SHA256SUMS does not have more.whl")


def test_signing_refuses_files_that_were_not_built_so(release, copy, keys):
    key = keys["maintainer"][1]
    release("sign", copy, "--key", keys["stranger"][1], fails="gpg has no secret key")
    append(copy / "posenc-0.1.0.tgz")
    release("sign", copy, "--key", key, fails=r"posenc-0\.1\.0\.tgz is not the file that `release build` made")
    (copy / "posenc-0.1.0.tgz").unlink()
    release("sign", copy, "--key", key, fails=r"lacks posenc-0\.1\.0\.tgz")
    (copy / "build.json").unlink()
    release("sign", copy, "--key", key, fails="build.json is missing")


def test_a_release_is_built_from_a_commit_with_one_version(release, checkout, tmp_path):
    build = ("build", tmp_path, "--source", "https://git.example/posenc", "--only", "chart")
    pom = checkout / "client/java/pom.xml"
    before = pom.read_text()
    pom.write_text(before.replace("<version>0.1.0<", "<version>0.1.1<", 1))
    try:
        release(*build, fails=r"not committed:\n *M client/java/pom\.xml")
        ended = subprocess.run([checkout / "packaging/versions"], capture_output=True, text=True)
        assert ended.returncode == 1 and "client/java/pom.xml has 0.1.1, not 0.1.0" in ended.stderr
    finally:
        pom.write_text(before)
    release(*build)
    # A second run adds to the directory; the image is left out where docker does not answer.
    assert "image: skipped" in release(*build[:4], NO_DOCKER="1")
    assert len(json.loads((tmp_path / "build.json").read_text())["files"]) == 6
    release("build", tmp_path, "--source", "https://elsewhere.example", "--only", "chart", fails="use an empty directory")


def test_apt_trusts_the_repository_by_its_key_only(copy, keys, tmp_path):
    repository = copy / "apt"
    line = f"deb [signed-by={{key}}] file:{repository} {suite_of(repository)} main"
    apt = apt_with(line.format(key=repository / "posenc.asc"), tmp_path / "root")
    run(*apt, "update", cwd=tmp_path)
    run(*apt, "download", "posenc-test", cwd=tmp_path)
    assert (tmp_path / "posenc-test_1.2_all.deb").exists()

    def refused(*apt):
        ended = subprocess.run([*apt, "update"], capture_output=True, text=True, cwd=tmp_path)
        assert ended.returncode, ended.stdout
        return ended.stderr

    stranger = tmp_path / "stranger.asc"
    stranger.write_text(run("gpg", "--batch", "--armor", "--export", env={**os.environ, "GNUPGHOME": keys["stranger"][0]}))
    assert "NO_PUBKEY" in refused(*apt_with(line.format(key=stranger), tmp_path / "other"))
    # The index no longer has the hash that Release names.
    for index in repository.glob("dists/*/main/binary-*/Packages*"):
        append(index)
    assert re.search("Hash Sum mismatch|unexpected size", refused(*apt_with(line.format(key=repository / "posenc.asc"), tmp_path / "third")))
