"""The bills of materials, and the Debian repository. scripts/package makes both of the real packages."""

import json
import subprocess

import pytest
from conftest import ROOT

DEPLOY = ROOT / "deploy"
EPOCH = {"SOURCE_DATE_EPOCH": "1700000000", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


def run(*command, **options):
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return make_package(tmp_path_factory.mktemp("package"))


def make_package(folder):
    """A small package that depends on the C library."""
    root = folder / "root"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN" / "control").write_text("""Package: posenc-test
Version: 1.2
Architecture: all
Maintainer: Nobody <nobody@packages.invalid>
Depends: libc6 (>= 2.36), absent-virtual-package
Description: a test
""")
    run("dpkg-deb", "--build", "--root-owner-group", root, root.parent / "posenc-test_1.2_all.deb")
    return root.parent / "posenc-test_1.2_all.deb"


def check_spdx(text):
    """Checks what SPDX 2.3 requires of the fields that are used, and that relations name what exists."""
    made = json.loads(text)
    assert (made["spdxVersion"], made["dataLicense"], made["SPDXID"]) == ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT")
    assert made["documentNamespace"].startswith("https://spdx.org/spdxdocs/")
    assert made["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
    ids = [package["SPDXID"] for package in made["packages"]]
    assert len(ids) == len(set(ids))
    for package in made["packages"]:
        assert {"name", "versionInfo", "downloadLocation", "licenseConcluded", "copyrightText"} <= package.keys()
    for relation in made["relationships"]:
        assert {relation["spdxElementId"], relation["relatedSpdxElement"]} <= {"SPDXRef-DOCUMENT", *ids}
    # With the reference implementation, where it is installed: pip install spdx-tools
    try:
        from spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser import JsonLikeDictParser
        from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
    except ImportError:
        return made
    assert not validate_full_spdx_document(JsonLikeDictParser().parse(made))
    return made


def relations(made):
    return {(relation["relationshipType"], relation["relatedSpdxElement"]) for relation in made["relationships"]}


def test_the_bill_of_an_image_names_each_package_with_its_version(tmp_path):
    status = tmp_path / "var" / "lib" / "dpkg" / "status.d"
    status.mkdir(parents=True)
    native = run("dpkg", "--print-architecture").strip()
    for name in ("libc6", "libstdc++6"):
        (status / name).write_text(run("dpkg-query", "--status", f"{name}:{native}"))
    text = run(DEPLOY / "write-sbom", "image", tmp_path, "1.2", env=EPOCH)
    assert text == run(DEPLOY / "write-sbom", "image", tmp_path, "1.2", env=EPOCH)
    made = check_spdx(text)
    assert {("DESCRIBES", "SPDXRef-posenc-container"), ("CONTAINS", "SPDXRef-libc6"),
            ("CONTAINS", "SPDXRef-libstdc--6"),
            ("STATIC_LINK", "SPDXRef-nlohmann-json3-dev")} <= relations(made)
    versions = {package["name"]: package["versionInfo"] for package in made["packages"]}
    assert versions["posenc-server-image"] == "1.2"
    assert versions["libc6"] == run("dpkg-query", "--show", "--showformat=${Version}", f"libc6:{native}")


def test_the_bill_of_a_package_has_its_checksum_and_dependencies(package):
    made = check_spdx(run(DEPLOY / "write-sbom", "package", package, env=EPOCH))
    own = made["packages"][0]
    assert (own["name"], own["versionInfo"], own["packageFileName"]) == ("posenc-test", "1.2", package.name)
    assert own["checksums"][0]["checksumValue"] == run("sha256sum", package).split()[0]
    assert ("DEPENDS_ON", "SPDXRef-libc6") in relations(made)
    assert "absent-virtual-package" not in json.dumps(made)


def apt_with(source, root):
    """The command apt-get with a root of its own, whose only source is that line."""
    for directory in ("etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial",
                      "var/cache/apt/archives/partial", "var/lib/dpkg"):
        (root / directory).mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text("")
    (root / "etc/apt/sources.list").write_text(source + "\n")
    return ("apt-get", "-q", "-o", f"Dir={root}", "-o", f"Dir::State::status={root}/var/lib/dpkg/status", "-o",
            "APT::Sandbox::User=root", "-o", "Acquire::Languages=none")


def suite_of(repository):
    return next((repository / "dists").iterdir()).name


def test_apt_finds_the_packages_of_the_repository(package, tmp_path):
    repository = tmp_path / "repository"
    run(DEPLOY / "make-repository", repository, package)
    apt = apt_with(f"deb [trusted=yes] file:{repository} {suite_of(repository)} main", tmp_path / "root")
    run(*apt, "update", cwd=tmp_path)
    run(*apt, "download", "posenc-test", cwd=tmp_path)
    assert (tmp_path / package.name).read_bytes() == package.read_bytes()
