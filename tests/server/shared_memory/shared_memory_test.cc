// The shared memory itself: what may be mapped, how long it stays mapped, and what happens if it is truncated in use.
#include "server/shared_memory/registry.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>
#include <new>
#include <set>
#include <thread>

#include "tests/service/call.h"

namespace posenc::server {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

Descriptor Memfd(int64_t size, int seals = kSeals) {
  Descriptor file(memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(file.get(), size), 0);
  EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

// A POSIX shared memory object that is removed with the test.
struct Posix {
  explicit Posix(int64_t size) : name("/posenc-test-" + std::to_string(getpid())) {
    file = Descriptor(shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600));
    EXPECT_EQ(ftruncate(file.get(), size), 0);
  }
  ~Posix() { shm_unlink(name.c_str()); }
  const std::string name;
  Descriptor file;
};

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator begin("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin, std::filesystem::directory_iterator()));
}

TEST(Memfd, MustBeSealedMemoryOfItsSize) {
  EXPECT_THAT(CheckMemfd(Memfd(100), 100), IsOk());
  EXPECT_THAT(CheckMemfd(Memfd(100), 1), IsOk());
  EXPECT_THAT(CheckMemfd(Memfd(100, kSeals | F_SEAL_WRITE), 100), IsOk());
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_GROW}) {
    EXPECT_THAT(CheckMemfd(Memfd(100, seals), 100), IsInvalid("UNSUPPORTED", "register_memfd")) << seals;
  }
  for (const int64_t size : {int64_t{0}, int64_t{-1}, int64_t{101}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(CheckMemfd(Memfd(100), size), IsInvalid("OUT_OF_RANGE", "byte_size")) << size;
  }
  const Descriptor null(open("/dev/null", O_RDWR)), self(open("/proc/self/exe", O_RDONLY)), none(-1);
  for (const Descriptor* file : {&null, &self, &none}) {
    EXPECT_THAT(CheckMemfd(*file, 1), IsInvalid("UNSUPPORTED", "register_memfd"));
  }
}

TEST(PosixMemory, IsFoundUnderItsPrefixOnly) {
  const Posix memory(100);
  EXPECT_THAT(OpenPosix(memory.name, "/posenc-", 100, false), IsOk());
  EXPECT_THAT(OpenPosix(memory.name, "/posenc-", 101, false), IsInvalid("OUT_OF_RANGE", "byte_size"));
  EXPECT_THAT(OpenPosix(memory.name, "", 100, false), IsInvalid("UNSUPPORTED", "register_posix"));
  const std::string with_zero = memory.name + std::string(1, '\0') + "x";
  for (const std::string& name :
       {std::string("/other"), std::string(), std::string("posenc-x"), memory.name.substr(1), std::string("/posenc-/x"),
        std::string("/posenc-/../x"), with_zero, "/posenc-" + std::string(300, 'x')}) {
    EXPECT_THAT(OpenPosix(name, "/posenc-", 100, false), IsInvalid("OUT_OF_RANGE", "name")) << name;
  }
  EXPECT_THAT(OpenPosix("/posenc-absent", "/posenc-", 100, false), IsInvalid("UNSUPPORTED", "name"));
}

TEST(PosixMemory, HasItsBytesFromTheOffsetOn) {
  const Posix memory(100);
  EXPECT_THAT(OpenPosix(memory.name, "/posenc-", 40, false, 60), IsOk());
  for (const int64_t offset : {int64_t{-1}, int64_t{61}, int64_t{1} << 40, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(OpenPosix(memory.name, "/posenc-", 40, false, offset), IsInvalid("OUT_OF_RANGE", "offset")) << offset;
  }
}

TEST(PosixMemory, IsNoPipeAndNoLink) {
  const std::string pipe = "/dev/shm/posenc-pipe-" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(OpenPosix(pipe.substr(8), "/posenc-", 1, false), IsInvalid("UNSUPPORTED", "name"));
  unlink(pipe.c_str());
  ASSERT_EQ(symlink("/proc/self/exe", pipe.c_str()), 0);
  EXPECT_THAT(OpenPosix(pipe.substr(8), "/posenc-", 1, true), IsInvalid("UNSUPPORTED", "name"));
  unlink(pipe.c_str());
}

TEST(Registry, GivesEachItsToken) {
  SharedMemoryRegistry registry(1000, 1 << 30);
  const Descriptor file = Memfd(10);
  std::set<std::string> tokens;
  for (int n = 0; n < 1000; ++n) {
    const auto token = registry.Register(file, 10, false);
    ASSERT_THAT(token, IsOk());
    EXPECT_EQ(token->size(), 16U);
    tokens.insert(*token);
  }
  EXPECT_EQ(tokens.size(), 1000U);
  EXPECT_EQ(registry.counters().regions, 1000);
  for (const std::string& token : tokens) EXPECT_TRUE(registry.Unregister(token));
  EXPECT_EQ(registry.counters().bytes, 0);
}

TEST(Registry, ShowsBothTheSameMemory) {
  SharedMemoryRegistry registry(2, 1 << 20);
  const Descriptor file = Memfd(2 * kPageBytes);
  const auto token = registry.Register(file, kPageBytes + 7, false);
  ASSERT_THAT(token, IsOk());
  const auto memory = registry.Find(*token);
  ASSERT_NE(memory, nullptr);
  ASSERT_EQ(memory->bytes().size(), static_cast<size_t>(kPageBytes + 7));
  ASSERT_EQ(pwrite(file.get(), "there", 5, kPageBytes), 5);
  EXPECT_EQ(std::memcmp(memory->bytes().data() + kPageBytes, "there", 5), 0);
  std::memcpy(memory->bytes().data() + 3, "back", 4);
  char read[4];
  ASSERT_EQ(pread(file.get(), read, 4, 3), 4);
  EXPECT_EQ(std::memcmp(read, "back", 4), 0);
  const auto twice = registry.Register(file, 1, false);
  ASSERT_THAT(twice, IsOk());
  EXPECT_EQ(registry.Find(*twice)->file(), memory->file());
}

TEST(Registry, CountsAndShowsAPartOfAFileOnly) {
  SharedMemoryRegistry registry(2, 200);
  const Descriptor file = Memfd(3 * kPageBytes);
  for (const int64_t offset : {kPageBytes + 7, 3 * kPageBytes - 100}) {
    const auto token = registry.Register(file, 100, false, SharedMemoryRegistry::Holder::kName, offset);
    ASSERT_THAT(token, IsOk()) << offset;
    const auto memory = registry.Find(*token);
    EXPECT_EQ(memory->file_offset(), offset);
    ASSERT_EQ(memory->bytes().size(), 100U);
    ASSERT_EQ(pwrite(file.get(), "there", 5, offset + 95), 5);
    EXPECT_EQ(std::memcmp(memory->bytes().data() + 95, "there", 5), 0);
  }
  EXPECT_EQ(registry.counters().bytes, 200);
}

TEST(Registry, KnowsMemoryOfOtherUsers) {
  SharedMemoryRegistry registry(10, 1 << 20);
  const Posix posix(kPageBytes);
  const Descriptor memfd = Memfd(kPageBytes);
  const auto is_of_other_user = [&](const Descriptor& file) {
    const auto token = registry.Register(file, kPageBytes, false);
    return token.ok() && registry.Find(*token)->of_other_user();
  };
  EXPECT_FALSE(is_of_other_user(posix.file));
  EXPECT_FALSE(is_of_other_user(memfd));
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files to other users";
  for (const Descriptor* file : {&posix.file, &memfd}) {
    ASSERT_EQ(fchown(file->get(), 12345, 0), 0);
    EXPECT_TRUE(is_of_other_user(*file));
  }
  ASSERT_EQ(seteuid(12345), 0);
  const bool is_of_other = is_of_other_user(memfd);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_FALSE(is_of_other) << "of the server's own user";
}

TEST(Registry, MapsReadOnlyWhatIsSealedAgainstWriting) {
  SharedMemoryRegistry registry(2, 1 << 20);
  const Descriptor sealed = Memfd(kPageBytes, kSeals | F_SEAL_WRITE);
  EXPECT_THAT(registry.Register(sealed, kPageBytes, false), IsInvalid("UNSUPPORTED", "read_only"));
  const auto token = registry.Register(sealed, kPageBytes, true);
  ASSERT_THAT(token, IsOk());
  EXPECT_FALSE(registry.Find(*token)->writable());
  EXPECT_EQ(registry.counters().regions, 1) << "what failed is not counted";
}

TEST(Registry, HasLimits) {
  SharedMemoryRegistry registry(2, 100);
  const Descriptor file = Memfd(200);
  const auto full = [](const char* field) {
    return FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", field);
  };
  EXPECT_THAT(registry.Register(file, 101, false), full("byte_size"));
  const auto first = registry.Register(file, 60, false);
  EXPECT_THAT(registry.Register(file, 41, false), full("byte_size"));
  EXPECT_THAT(registry.Register(file, 40, false), IsOk());
  EXPECT_THAT(registry.Register(file, 1, false), full(""));
  auto held = registry.Find(*first);
  EXPECT_TRUE(registry.Unregister(*first));
  EXPECT_FALSE(registry.Unregister(*first));
  EXPECT_EQ(registry.Find(*first), nullptr);
  EXPECT_EQ(registry.counters().bytes, 100) << "a call still holds it";
  held->bytes()[59] = std::byte{1};
  held = nullptr;
  EXPECT_EQ(registry.counters().bytes, 40);
  EXPECT_THAT(registry.Register(file, 60, false), IsOk());
}

TEST(Registry, NamesHaveHalf) {
  SharedMemoryRegistry registry(3, 101, /*names_have_half=*/true);
  const Descriptor file = Memfd(200);
  const auto name = [&](int64_t bytes) {
    return registry.Register(file, bytes, false, SharedMemoryRegistry::Holder::kName);
  };
  const auto full = [](const char* field) {
    return FailsWith(absl::StatusCode::kResourceExhausted, "TOO_LARGE", field);
  };
  EXPECT_THAT(name(52), full("byte_size"));
  const auto first = name(50);
  EXPECT_THAT(name(2), full("byte_size"));
  EXPECT_THAT(name(1), IsOk());
  EXPECT_THAT(name(1), full(""));
  EXPECT_THAT(registry.Register(file, 50, false), IsOk()) << "the rest is for connections";
  EXPECT_THAT(registry.Register(file, 1, false), full(""));
  registry.Unregister(*first);
  EXPECT_THAT(name(50), IsOk());
  EXPECT_EQ(registry.counters().bytes, 101);
}

TEST(Registry, LeaksNoDescriptorAndNoMapping) {
  const size_t before = OpenDescriptors();
  SharedMemoryRegistry registry(1, kPageBytes);
  const Posix memory(kPageBytes);
  for (int n = 0; n < 1000; ++n) {
    EXPECT_FALSE(CheckMemfd(Memfd(kPageBytes, 0), kPageBytes).ok());
    EXPECT_FALSE(OpenPosix(memory.name, "/posenc-", 2 * kPageBytes, false).ok());
    EXPECT_FALSE(registry.Register(Memfd(2 * kPageBytes), 2 * kPageBytes, false).ok());
    const auto token = registry.Register(Memfd(kPageBytes), kPageBytes, false);
    ASSERT_THAT(token, IsOk()) << "a mapping has been left";
    registry.Unregister(*token);
  }
  EXPECT_EQ(OpenDescriptors(), before + 1) << "but for the object itself";
}

// A device without memory for another region.
class FullDevice final : public Device {
 public:
  const std::string& name() const override { return name_; }
  bool usable() const override { return true; }
  size_t slab_bytes() const override { return 1; }
  size_t calls_at_once() const override { return 1; }
  bool Rotate(const RotateSlab&) override { return false; }
  bool ComputeBias(const DistanceBias&) override { return false; }
  bool ComputeTable(const TableRecipe&, std::byte*, std::byte*) override { return false; }
  absl::StatusOr<DeviceMemory> Open(std::string_view, size_t) override { throw std::bad_alloc(); }
  absl::Status RotateInPlace(const PairRotation&, const TableRecipe*) override { return absl::OkStatus(); }

 private:
  const std::string name_ = "full";
};

TEST(Registry, CountsNothingAfterALackOfMemory) {
  SharedMemoryRegistry registry(1, kPageBytes);
  FullDevice device;
  EXPECT_THROW(static_cast<void>(registry.RegisterOn(&device, "handle", 1, false)), std::bad_alloc);
  EXPECT_EQ(registry.counters().regions, 0);
  EXPECT_THAT(registry.Register(Memfd(kPageBytes), kPageBytes, false), IsOk());
}

TEST(Registry, MayEndBeforeItsMemory) {
  std::shared_ptr<const wire::SharedMemory> memory;
  {
    SharedMemoryRegistry registry(1, kPageBytes);
    memory = registry.Find(*registry.Register(Memfd(kPageBytes), kPageBytes, false));
  }
  memory->bytes()[0] = std::byte{1};
}

class Truncated : public testing::TestWithParam<bool> {};

TEST_P(Truncated, MemoryIsZeroAndSaysSo) {
  const bool write = GetParam();
  SharedMemoryRegistry registry(3, 1 << 30);
  const Posix memory(64 * kPageBytes);
  const auto lost = registry.Find(*registry.Register(memory.file, 64 * kPageBytes, false));
  const auto other = registry.Find(*registry.Register(Memfd(64 * kPageBytes), 64 * kPageBytes, false));
  std::memset(lost->bytes().data(), 1, lost->bytes().size());
  EXPECT_FALSE(lost->damaged());
  ASSERT_EQ(ftruncate(memory.file.get(), 3 * kPageBytes), 0);
  EXPECT_FALSE(lost->damaged()) << "nobody has looked yet";
  // Many threads at once, like a kernel's slabs.
  std::vector<std::thread> threads;
  std::atomic<int> sum = 0;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t page = t + 3; page < 64; page += 4) {
        std::byte& byte = lost->bytes()[page * kPageBytes + 5];
        if (write) {
          byte = std::byte{2};
        } else {
          sum += static_cast<int>(byte);
        }
        other->bytes()[page * kPageBytes] = std::byte{3};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 0);
  EXPECT_TRUE(lost->damaged());
  EXPECT_FALSE(other->damaged());
  EXPECT_EQ(other->bytes()[63 * kPageBytes], std::byte{3});
  // From then on the memory is private: the file is not written.
  lost->bytes()[0] = std::byte{7};
  char first = 0;
  ASSERT_EQ(pread(memory.file.get(), &first, 1, 0), 1);
  EXPECT_EQ(first, 1);
  const auto anew = registry.Find(*registry.Register(memory.file, 3 * kPageBytes, false));
  EXPECT_FALSE(anew->damaged());
}

INSTANTIATE_TEST_SUITE_P(ReadAndWritten, Truncated, testing::Bool());

TEST(Truncated, WhileItIsRegisteredAndUnregistered) {
  SharedMemoryRegistry registry(100, 1 << 30);
  const Posix memory(8 * kPageBytes);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int n = 0; n < 200; ++n) {
        const auto token = registry.Register(memory.file, 8 * kPageBytes, false);
        ASSERT_THAT(token, IsOk());
        const auto found = registry.Find(*token);
        EXPECT_TRUE(registry.Unregister(*token));
        for (int64_t page = 0; page < 8; ++page) found->bytes()[page * kPageBytes] = std::byte{1};
      }
    });
  }
  for (int n = 0; n < 500; ++n) {
    EXPECT_EQ(ftruncate(memory.file.get(), n % 9 * kPageBytes), 0);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(registry.counters().regions, 0);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST(FaultGuardDeathTest, LeavesOtherFaultsAlone) {
  SharedMemoryRegistry registry(1, 1 << 20);
  const auto token = registry.Register(Memfd(kPageBytes), kPageBytes, false);
  const Posix memory(kPageBytes);
  auto* own = static_cast<volatile char*>(mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, memory.file.get(), 0));
  ASSERT_EQ(ftruncate(memory.file.get(), 0), 0);
  EXPECT_EXIT(static_cast<void>(*own), testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(raise(SIGBUS), testing::KilledBySignal(SIGBUS), "");
}
#endif

TEST(FaultGuard, HasSlotsForEveryRange) {
  std::vector<std::unique_ptr<FaultGuard>> guards;
  for (size_t n = 0; n < FaultGuard::kMostRanges; ++n) {
    guards.push_back(FaultGuard::Make(nullptr, kPageBytes, true));
    ASSERT_NE(guards.back(), nullptr);
  }
  EXPECT_EQ(FaultGuard::Make(nullptr, kPageBytes, true), nullptr);
  guards.pop_back();
  EXPECT_NE(FaultGuard::Make(nullptr, kPageBytes, true), nullptr);
  guards.clear();
  EXPECT_EQ(FaultGuard::Make(nullptr, int64_t{1} << 40, true), nullptr) << "more than a slot can say";
}

}  // namespace
}  // namespace posenc::server
