"""Conan's recipe of what computes in process: C++ and C library, and the command. It builds the checkout that it lies in."""

import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy
from conan.tools.gnu import PkgConfigDeps

required_conan_version = ">=2.1"


class Posenc(ConanFile):
    name = "posenc"
    version = "0.1.0"
    description = "Positional encodings for attention, exact and reproducible"
    license = "Apache-2.0"
    homepage = url = "https://git.example/posenc"
    topics = ("attention", "positional-encoding", "rope")
    package_type = "static-library"  # libposenc.so, the library in plain C, is shared all the same
    settings = "os", "arch", "compiler", "build_type"

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "posenc/*", "proto/*", "tools/*"):
            copy(self, pattern, root, self.export_sources_folder)

    def requirements(self):
        for public in ("abseil/[>=20220623]", "fmt/[>=9.1]", "highway/[>=1.0.3]", "protobuf/[>=3.21]"):
            self.requires(public, transitive_headers=True, transitive_libs=True)
        for private in ("gmp/[>=6.2]", "mpfr/[>=4.2]", "xxhash/[>=0.8]"):
            self.requires(private, transitive_libs=True)
        self.requires("cli11/[>=2.1]", libs=False)
        self.requires("nlohmann_json/[>=3.11]", libs=False)

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.25]")
        self.tool_requires("protobuf/<host_version>")
        self.tool_requires("pkgconf/[>=2.0]")

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration("posenc is for Linux on x86_64 and armv8")
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for option in ("POSENC_SERVER", "POSENC_GRPC", "POSENC_BUILD_TESTS"):
            toolchain.cache_variables[option] = False
        toolchain.generate()
        packages = CMakeDeps(self)
        # The names that Highway's own CMake files have.
        packages.set_property("highway", "cmake_file_name", "hwy")
        packages.set_property("highway::hwy", "cmake_target_name", "hwy::hwy")
        packages.generate()
        PkgConfigDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()

    def package_info(self):
        # Programs use the library's own CMake files, which name the targets posenc::in_process and posenc::posenc.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "posenc")]
